import { CronError, parseCron } from "../../codec/calendar/cron.ts";
import { DAY_IN_MS, isTimezone, MINUTE_IN_MS, Zone } from "../../codec/calendar/zone.ts";
import { parseDurationMs } from "../../codec/config/number.ts";
import {
  anything,
  boolean,
  check,
  described,
  type Infer,
  isObject,
  join,
  list,
  object,
  oneOf,
  optional,
  otherwise,
  parsedJson,
  quote,
  type Report,
  refined,
  type Shape,
  string,
  withDefault,
} from "../../core/shape.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { line, name, reportTwice, SCHEMA_KEY, timezone } from "../base/names.ts";
import type { Problems } from "../base/problems.ts";
import { parseSourceJson, readSource, relative } from "../source/source-file.ts";

/** The kinds of runs that a schedule may start. */
export const SCHEDULED_KINDS = [
  "health_check",
  "drift",
  "worker_facts",
  "worker_uptime",
  "worker_sysstat",
  "snapshot_create",
  "gc",
  "run_command",
  "build",
  "deploy",
] as const;

/** Of one file. */
const MOST_SCHEDULES = 200;
const MOST_FREEZES = 100;

const CRON = { ...refined(string({ max: 200 }), checkedCron), schema: { type: "string", maxLength: 200 } };
const OF_CLOCK = described(withDefault(timezone, "UTC"), "The timezone, such as Europe/Berlin");

const SCHEDULE_FIELDS = {
  name: described(name, "Unique in the file; the run's actor is schedule:<name>"),
  every: described(
    optional(span(MINUTE_IN_MS, 31 * DAY_IN_MS)),
    "Every so much time, such as 15m or 1h30m, counted from 1970 in UTC",
  ),
  cron: described(optional(CRON), "Five fields: minute, hour, day of the month, month, day of the week"),
  timezone: OF_CLOCK,
  kind: described(oneOf(...SCHEDULED_KINDS), "What the run does"),
  parameters: described(withDefault(parameters(), {}), "The parameters of the run, as its route takes them"),
  deploy: described(withDefault(boolean(), false), "Needed for a deploy that is no dry run"),
  if_busy: described(
    otherwise(waiting(), 5 * MINUTE_IN_MS),
    "Where the bucket is busy: wait in line for that time at most, such as 10m (default 5m), or skip",
  ),
  jitter: described(otherwise(span(0, DAY_IN_MS), 0), "Start up to so much later, each schedule by a time of its own"),
  catch_up: described(withDefault(boolean(), false), "Start once for what was missed while the server was away"),
};

const FREEZE_FIELDS = {
  from: described(optional(wallTime()), "Its beginning, as 2026-12-20T18:00 on the clocks of the timezone"),
  to: described(optional(wallTime()), "Its end"),
  cron: described(optional(CRON), "When it begins, each time"),
  for: described(optional(span(MINUTE_IN_MS, 31 * DAY_IN_MS)), "How long it lasts then, such as 62h"),
  timezone: OF_CLOCK,
  reason: described(
    refined(line(200), (text, path, report) => {
      if (text === "") report(path, "must not be empty");
      return text;
    }),
    "Why; shown to everyone who is refused",
  ),
};

const SCHEDULE = refined(object(SCHEDULE_FIELDS), scheduleOf);
const FREEZE = refined(object(FREEZE_FIELDS), freezeOf);

const FILE = object({
  $schema: SCHEMA_KEY,
  schedules: described(withDefault(namedOnce(list(SCHEDULE, { max: MOST_SCHEDULES })), []), "What the server starts by itself"),
  freeze: described(withDefault(list(FREEZE, { max: MOST_FREEZES }), []), "Windows in which deploys and the like are refused"),
});

/** The JSON Schema of schedules.json. */
export const SCHEDULES_SCHEMA = FILE.schema;

/** What schedules.json says. Durations are in milliseconds. */
export interface Schedules {
  schedules: Schedule[];
  freeze: Freeze[];
}
/** Something that the server starts by itself. */
export type Schedule = ReturnType<typeof scheduleOf>;
/** Windows in which deploys and the like are refused; instants are in milliseconds since 1970. */
export type Freeze = ReturnType<typeof freezeOf>;

/** What a bucket without the file has. */
export const NO_SCHEDULES: Schedules = { schedules: [], freeze: [] };

/** Reads `workspace/schedules.json`; nothing is scheduled where there is none (`ErrInvalidSchedules`). */
export async function readSchedules(layout: Layout, problems: Problems): Promise<Schedules & { text: string }> {
  const found = problems.in(relative(layout, layout.schedulesJson), "ErrInvalidSchedules");
  const value = (await readSource(parseSourceJson, layout, found)) ?? {};
  return { ...(found.take(check(FILE, value)) ?? NO_SCHEDULES), text: JSON.stringify(value) };
}

/** The schedules in a text that a build has stored. What a build of another version let pass counts as none. */
export function storedSchedules(text: string): Schedules {
  const checked = check(FILE, parsedJson(text));
  return checked.ok ? checked.value : NO_SCHEDULES;
}

/** What the last build found in schedules.json. */
export function builtSchedules(db: Database): Schedules {
  return storedSchedules(db.get<{ schedules: string }>("SELECT schedules FROM bucket")?.schedules ?? "{}");
}

type Given = { [K in keyof typeof SCHEDULE_FIELDS]: Infer<(typeof SCHEDULE_FIELDS)[K]> };

function scheduleOf(given: Given, path: string, report: Report) {
  const { every, cron, timezone, kind, parameters, deploy } = given;
  if ((every === undefined) === (cron === undefined)) report(path, "expected either every or cron");
  if (every !== undefined && every > 0 && given.jitter > every) report(join(path, "jitter"), "must not be longer than every");
  const isReal = kind === "deploy" && parameters.dry_run !== true;
  if (isReal && !deploy)
    report(path, 'expected dry_run among the parameters of a deploy, or "deploy": true for one that changes workers');
  if (deploy && !isReal) report(join(path, "deploy"), "goes only with a deploy that is no dry run");
  if (parameters.plan !== undefined || parameters.retry_of !== undefined)
    report(join(path, "parameters"), "plan and retry_of are of one run only, and no schedule repeats it");
  return {
    name: given.name,
    rhythm: cron === undefined ? { everyMs: every ?? DAY_IN_MS } : { cron, timezone },
    kind,
    parameters,
    /** How long it waits for a busy bucket; 0 for not at all. */
    waitMs: given.if_busy,
    jitterMs: given.jitter,
    catchUp: given.catch_up,
  };
}

type GivenFreeze = { [K in keyof typeof FREEZE_FIELDS]: Infer<(typeof FREEZE_FIELDS)[K]> };

function freezeOf({ from, to, cron, timezone, reason, ...given }: GivenFreeze, path: string, report: Report) {
  const isOnce = from !== undefined && to !== undefined && cron === undefined && given.for === undefined;
  const isRepeated = from === undefined && to === undefined && cron !== undefined && given.for !== undefined;
  if (!isOnce && !isRepeated) report(path, "expected from and to, or cron and for");
  const repeated = { rhythm: { cron: cron ?? "", timezone }, forMs: given.for ?? 0, reason };
  if (!isOnce || !isTimezone(timezone)) return repeated;
  const [fromMs, toMs] = [from, to].map((wall) => new Zone(timezone).instantOf(wall)) as [number, number];
  if (toMs <= fromMs) report(join(path, "to"), "must be after from");
  return { fromMs, toMs, reason };
}

function checkedCron(text: string, path: string, report: Report): string {
  try {
    if (typeof text === "string") parseCron(text);
  } catch (error) {
    if (!(error instanceof CronError)) throw error;
    report(path, error.message);
  }
  return text;
}

/** Parameters of a run; the build checks them, because their shapes belong to the runs. */
function parameters(): Shape<Record<string, unknown>> {
  const shape = anything({ type: "object" }) as Shape<Record<string, unknown>>;
  return refined(shape, (value, path, report) => {
    if (isObject(value)) return value;
    report(path, "expected an object");
    return {};
  });
}

/** A duration as text, in milliseconds. */
function span(min: number, max: number): Shape<number> {
  const words = min === 0 ? "up to" : "from 1m to";
  const limit = max === DAY_IN_MS ? "24h" : `${(max / DAY_IN_MS) * 24}h`;
  return {
    schema: { type: "string" },
    check(value, path, report) {
      const ms = typeof value === "string" ? parseDurationMs(value) : undefined;
      if (ms !== undefined && ms >= min && ms <= max && ms % 1_000 === 0) return ms;
      report(path, `expected a time ${words} ${limit} in whole seconds, such as 15m or 1h30m`);
      return min;
    },
  };
}

/** `skip`, which is 0, or a duration. */
function waiting(): Shape<number> {
  const time = span(0, DAY_IN_MS);
  return { schema: time.schema, check: (value, path, report) => (value === "skip" ? 0 : time.check(value, path, report)) };
}

/** What a clock on the wall shows, in milliseconds since it showed 1970-01-01 00:00. */
function wallTime(): Shape<number> {
  const shape = string({ pattern: /^\d{4}-\d\d-\d\dT\d\d:\d\d$/, means: "a time such as 2026-12-20T18:00" });
  return {
    schema: shape.schema,
    check(value, path, report) {
      const wall = Date.parse(`${shape.check(value, path, report)}Z`);
      // A date such as 30 February would become one in March.
      const isReal = !Number.isNaN(wall) && new Date(wall).toISOString().startsWith(String(value));
      if (typeof value === "string" && /^\d/.test(value) && !isReal) report(path, `there is no time ${quote(value)}`);
      return isReal ? wall : 0;
    },
  };
}

function namedOnce(shape: Shape<Schedule[]>): Shape<Schedule[]> {
  return refined(shape, (schedules, path, report) => {
    const names = schedules.map(({ name }) => name);
    reportTwice(names, (at, one) => report(`${join(path, at)}/name`, `the schedule ${quote(one)} is there twice`));
    return schedules;
  });
}
