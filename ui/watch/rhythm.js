// The rhythm of a schedule in words.
import { listed } from "../base/text.js";

const UNITS = { day: 86_400, hour: 3_600, minute: 60 };
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = "January February March April May June July August September October November December".split(" ");

/**
 * When a schedule is due: `every 15 minutes`, `Monday to Friday at 07:00 (Europe/Berlin)`. What has no plain words is shown as
 * it is written: `cron 0 9 1-7 * mon`.
 * @param {{ every_seconds: number | null, cron: string | null, timezone: string | null }} schedule
 */
export function rhythmText({ every_seconds: every, cron, timezone }) {
  if (every) return everyText(every);
  return `${cronText(cron.toLowerCase()) ?? `cron ${cron}`} (${timezone})`;
}

function everyText(seconds) {
  const [unit, size] = Object.entries(UNITS).find(([, length]) => seconds % length === 0) ?? ["second", 1];
  return each(seconds / size, unit);
}

function each(many, unit) {
  return many === 1 ? `every ${unit}` : `every ${many} ${unit}s`;
}

/** Null where the words would be longer than the fields. */
function cronText(cron) {
  const [minute, hour, day, month, weekday] = cron.trim().split(/\s+/);
  const step = /^\*(?:\/(\d+))?$/.exec(minute);
  if (`${hour} ${day} ${month} ${weekday}` === "* * * *") {
    if (step) return each(Number(step[1] ?? 1), "minute");
    return /^\d+$/.test(minute) ? `every hour at ${minute} past` : null;
  }
  const [times, days] = [timesText(minute, hour), daysText(day, month, weekday)];
  return times && days && `${days} at ${times}`;
}

/** `07:00`, `05:30 and 17:30`. */
function timesText(minute, hour) {
  if (!/^\d+$/.test(minute) || !/^\d+(,\d+)*$/.test(hour)) return null;
  const times = hour.split(",").map((one) => `${one.padStart(2, "0")}:${minute.padStart(2, "0")}`);
  return listed(times, 4);
}

function daysText(day, month, weekday) {
  if (day === "*" && month === "*") return weekday === "*" ? "every day" : weekdaysText(weekday);
  if (weekday !== "*" || !/^\d+(,\d+)*$/.test(day)) return null;
  const ofMonth = listed(day.split(","), 4);
  if (month === "*") return `day ${ofMonth} of every month`;
  const name = nameIn(MONTHS, month, 1);
  return name && `${ofMonth} ${name}`;
}

/** `Monday to Friday`, `Sunday and Wednesday`. */
function weekdaysText(field) {
  const parts = field.split(",").map((part) => {
    const names = part.split("-").map((one) => nameIn(DAYS, one, 0));
    return names.includes(null) || names.length > 2 ? null : names.join(" to ");
  });
  return parts.includes(null) ? null : listed(/** @type {string[]} */ (parts), 6);
}

/** The name behind a number, or behind its first three letters; Sunday is 0 and 7. */
function nameIn(names, word, first) {
  const isShort = (name) => name.slice(0, 3).toLowerCase() === word;
  const index = /^\d+$/.test(word) ? (Number(word) - first) % names.length : names.findIndex(isShort);
  return names[index] ?? null;
}
