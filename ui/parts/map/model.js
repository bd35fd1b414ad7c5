// What the map of jobs and workers shows, before anything is drawn: states, the order of rows, columns in bands.
import { byName, markOf } from "../state.js";

/** What a letter says, from the worst on. A capital one says that files were changed by hand, too. */
export const STATES = {
  f: "failed",
  u: "unreachable",
  r: "running",
  w: "waiting",
  x: "cancelled",
  c: "changed",
  o: "ok",
  d: "disabled",
};
const LETTERS = Object.fromEntries(Object.entries(STATES).map(([letter, word]) => [word, letter]));
/** Rows with these come first; what is unreachable is seen as a column. */
const URGENT = "frwx";
/** A value of a tag makes a group where there are so many of them. */
const [LEAST_VALUES, MOST_VALUES] = [2, 40];
/** So many groups are told of workers that have the same trouble. */
const MOST_PLACES = 3;
/** Where there are no more columns, each head says how many workers it stands for. */
const FEW_WORKERS = 6;

/** How many cells have each letter; `hand` counts the capital ones. */
export function tally(cells) {
  const counts = { hand: 0 };
  for (const mark of cells) {
    if (mark === " ") continue;
    const letter = mark.toLowerCase();
    if (letter !== mark) counts.hand++;
    counts[letter] = (counts[letter] ?? 0) + 1;
  }
  return counts;
}

/** Adds up tallies. */
export function total(tallies) {
  const sum = { hand: 0 };
  for (const one of tallies) for (const [letter, count] of Object.entries(one)) sum[letter] = (sum[letter] ?? 0) + count;
  return sum;
}

/** The letters of a tally, the worst first. */
export function lettersIn(counts) {
  return Object.keys(STATES).filter((letter) => counts[letter] > 0);
}

/** Jobs in the order of their trouble, then by name. */
export function ordered(jobs) {
  const rank = (job) => (isWell(job) ? URGENT.length : [...URGENT].findIndex((letter) => job.counts[letter] > 0));
  return jobs.toSorted((one, other) => rank(one) - rank(other) || byName(one.job, other.job));
}

/** Whether no worker that answers has any trouble with a job. */
export function isWell({ counts }) {
  return ![...URGENT].some((letter) => counts[letter] > 0);
}

/**
 * What a run has reached, as letters: job to worker to letter. What still runs or waits is
 * what the run says now; what has ended stays.
 * @param {Map<string, Map<string, string>>} before
 * @param {{ job: string, hosts: { worker: string, state: string }[] }[]} rollouts
 */
export function reached(before, rollouts) {
  const now = new Map();
  for (const [job, workers] of before) now.set(job, new Map([...workers].filter(([, letter]) => !"rw".includes(letter))));
  for (const { job, hosts } of rollouts) {
    const workers = now.get(job) ?? new Map();
    for (const { worker, state } of hosts) workers.set(worker, letterOf(state));
    now.set(job, workers);
  }
  return now;
}

/** The letter of a state or an outcome. */
export function letterOf(state) {
  return LETTERS[markOf(state)] ?? "w";
}

/** The cells of a job with what a run has reached since they were read. What is disabled and as it should be stays so. */
function merged(cells, indexOf, letters) {
  if (!letters) return cells;
  const all = [...cells];
  for (const [worker, letter] of letters) {
    const at = indexOf.get(worker);
    if (all[at] !== undefined && `${all[at]}${letter}` !== "do") all[at] = letter;
  }
  return all.join("");
}

/** The jobs of a map with what a run has reached since it was read, and their tallies. What is `left` to the run waits for it. */
export function jobsNow({ workers, jobs }, letters, left) {
  const indexOf = new Map(workers.map(({ worker }, index) => [worker, index]));
  return jobs.map((one) => {
    const known = merged(one.cells, indexOf, letters.get(one.job));
    const cells = left.has(one.job) ? known.replace(/[oc]/g, "w").replace(/[OC]/g, "W") : known;
    return { ...one, cells, counts: tally(cells) };
  });
}

/**
 * Names in parts: the stem that some share, and the tail that is shown. `ams-b-007` → `ams-b-` and `07`, where all are
 * below 100.
 */
export function cutNames(names) {
  const suffix = suffixOf(names);
  const short = names.map((name) => name.slice(0, name.length - suffix.length));
  let parts = short.map((name) => {
    const [, stem, tail] = /^(.*?)(\d*)$/s.exec(name);
    return tail === "" ? { stem: "", tail: name } : { stem, tail };
  });
  const stems = new Set(parts.map(({ stem }) => stem));
  if (stems.size > Math.max(1, names.length / 2)) {
    const shared = stemOf(commonPrefix(short));
    parts = short.map((name) => ({ stem: shared, tail: name.slice(shared.length) }));
  }
  const zeros = zerosOf(parts.map(({ tail }) => tail));
  return parts.map(({ stem, tail }) => ({ stem, tail: tail.slice(zeros.length), zeros }));
}

/** What stands for the parts that are cut: `ams-?-0`. */
export function cornerOf(parts) {
  const stems = [...new Set(parts.map(({ stem }) => stem))];
  const { zeros = "" } = parts[0] ?? {};
  if (stems.length < 2) return `${stems[0] ?? ""}${zeros}`;
  const start = commonPrefix(stems);
  const ends = stems.map((stem) => [...stem.slice(start.length)].reverse().join(""));
  return `${start}?${[...commonPrefix(ends)].reverse().join("")}${zeros}`;
}

function suffixOf(names) {
  const [first = ""] = names;
  const suffix = first.slice(first.indexOf("."));
  const isDomain = first.includes(".") && /[a-z]/i.test(suffix) && names.length > 1;
  return isDomain && names.every((name) => name.endsWith(suffix)) ? suffix : "";
}

/** A beginning of names, cut behind its last `-`, `.`, `_` or `:`: `ams-b-00` → `ams-b-`. */
export function stemOf(start) {
  return start.replace(/[^-._:]*$/, "");
}

/** The beginning that all names have in common. */
export function commonPrefix(names) {
  const [first = "", ...others] = names;
  let length = first.length;
  for (const name of others) while (!name.startsWith(first.slice(0, length))) length--;
  return first.slice(0, length);
}

function zerosOf(tails) {
  const isEven = tails.every((tail) => /^\d+$/.test(tail) && tail.length === tails[0].length);
  return isEven ? /^0*/.exec(commonPrefix(tails.map((tail) => tail.slice(0, -1))))[0] : "";
}

/** By what workers can be grouped: the name, and each tag or label with a fit number of values. */
export function groupings(workers) {
  const keys = new Set(workers.flatMap(({ tags }) => Object.keys(tags ?? {})));
  const fit = (key) => {
    const values = new Set(workers.map((worker) => tagOf(worker, key)));
    return values.size >= LEAST_VALUES && values.size <= MOST_VALUES;
  };
  const others = [...keys].sort().filter((key) => key !== "label" && fit(key));
  const isOwn = fit("label") && others.every((key) => partition(workers, key) !== partition(workers, "label"));
  return ["name", ...(isOwn ? ["label"] : []), ...others];
}

/** Which workers are in one group: the same for tags that group alike. */
function partition(workers, key) {
  const values = [...new Set(workers.map((worker) => tagOf(worker, key)))];
  return workers.map((worker) => values.indexOf(tagOf(worker, key))).join();
}

/** The workers with their labels as one more tag: those labels that not all of them have. */
export function labelled(workers) {
  const [{ labels: first = [] } = {}] = workers;
  const shared = new Set(first.filter((label) => workers.every(({ labels = [] }) => labels.includes(label))));
  return workers.map(({ labels = [], tags, ...worker }) => {
    const own = labels.filter((label) => !shared.has(label));
    return { ...worker, tags: { ...(own.length > 0 && { label: own.join(" + ") }), ...tags } };
  });
}

/**
 * Where some of the workers are, by the tag that tells most: `in 2 racks: r07 12, r08 3`. Nothing where they are
 * everywhere.
 * @param {string[]} names
 * @param {{ worker: string, tags?: Record<string, string> }[]} workers
 */
export function whereabouts(names, workers) {
  const wanted = new Set(names);
  const own = workers.filter(({ worker }) => wanted.has(worker));
  const groupsOf = (some, key) => [...Map.groupBy(some, (worker) => tagOf(worker, key))];
  const ways = groupings(workers).slice(1);
  const told = ways.map((key) => ({ key, all: groupsOf(workers, key).length, places: groupsOf(own, key) }));
  const fit = told.filter(({ all, places }) => places.length <= MOST_PLACES && places.length < all);
  const [best] = fit.sort((one, other) => other.all - one.all);
  if (!best) return "";
  const places = best.places.toSorted(([, one], [, other]) => other.length - one.length);
  if (places.length === 1) return `in ${best.key} ${places[0][0]}`;
  return `in ${places.length} ${best.key}s: ${places.map(([value, own]) => `${value} ${own.length}`).join(", ")}`;
}

/** @param {{ tags?: Record<string, string> }} worker @param {string} key */
function tagOf({ tags }, key) {
  return tags?.[key] ?? "none";
}

/**
 * Columns in bands. A column is one worker, or many where `most` says how many columns there may be.
 * @param {{ worker: string, tags?: Record<string, string> }[]} workers
 * @param {string} by
 * @param {number} [most]
 * @returns {{ label: string, size: number, columns: { label: string, of: number[] }[] }[]}
 */
export function bandsOf(workers, by, most) {
  const parts = cutNames(workers.map(({ worker }) => worker));
  const groups = grouped(workers.map((worker, index) => [by === "name" ? parts[index].stem : tagOf(worker, by), index]));
  if (groups.length > most / 4) return inBands(groups, most);
  const each = most ? Math.ceil(workers.length / (most - groups.length + 1)) : 1;
  const single = (at) => ({ label: parts[at].tail, of: [at] });
  return groups.map(({ label, of }) => bandWith(label, columnsIn(of.map(single), each)));
}

function grouped(pairs) {
  const found = [...Map.groupBy(pairs, ([stem]) => stem)].sort(([one], [other]) => byName(one, other));
  return found.map(([stem, own]) => ({ label: withoutEnd(stem), of: own.map(([, index]) => index) }));
}

function withoutEnd(stem) {
  return stem.replace(/[-._]+$/, "");
}

function bandWith(stem, columns) {
  return { label: withoutEnd(stem), size: columns.reduce((sum, { of }) => sum + of.length, 0), columns };
}

/** So many groups at a time as one column: `07` or `07–12`. */
function columnsIn(groups, each) {
  const pieces = groups.flatMap((_, at) => (at % each === 0 ? [groups.slice(at, at + each)] : []));
  return pieces.map((own) => {
    const labels = [...new Set([own[0].label, own.at(-1).label])];
    return { label: labels.join("–"), of: own.flatMap(({ of }) => of) };
  });
}

/** Groups as columns; those whose labels have a common part stand in one band: `ams-r07` and `ams-r08` in `ams-r`. */
function inBands(groups, most) {
  const parts = cutNames(groups.map(({ label }) => label));
  const bands = Map.groupBy(groups.keys(), (index) => parts[index].stem);
  const each = Math.ceil(groups.length / most);
  const withSize = ({ label, of }) => ({ label: most > FEW_WORKERS ? label : `${label} · ${of.length}`, of });
  if (bands.size === 1 || bands.size > groups.length / 2) return [bandWith("", columnsIn(groups, each).map(withSize))];
  const short = (index) => ({ ...groups[index], label: parts[index].zeros + parts[index].tail });
  return [...bands].map(([stem, indexes]) => bandWith(stem, columnsIn([...indexes].map(short), each)));
}
