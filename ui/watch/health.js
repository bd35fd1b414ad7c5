// How jobs and workers were over time, as the runs have found them (operate.md, Health over time).
import { keepQuery, queryOf, unless } from "../base/api.js";
import { a, el, svg } from "../base/dom.js";
import { clockTime, count, number, plain, said, since } from "../base/text.js";
import { choice } from "../parts/form.js";
import { region } from "../parts/region.js";
import { markOf, state } from "../parts/state.js";
import { dataTable } from "../parts/table.js";
import { isGood, percentText, RANGES, segmentsOf, stripOf } from "./history.js";

/** Changes that are read at most. */
const MOST_CHANGES = 5_000;
/** What is watched, as it is said. */
const ASPECT_NAMES = { reach: "connection", health: "health", load: "load", files: "files" };
const ASPECT_ORDER = Object.keys(ASPECT_NAMES);
const NOTHING_KNOWN = "Nothing is known yet: health checks, drift runs and readings tell.";

/** The records of a job or a worker, and its changes. @param {any} page @param {{ job?: string, worker?: string }} of */
async function readHealth(page, of) {
  const read = (path, most) => unless(page.list(`${path}?${queryOf({ ...of, limit: 500 })}`, most), []);
  const [records, changes] = await Promise.all([read("/health"), read("/health/changes", MOST_CHANGES)]);
  // What the server counts of 90 days moves with the clock, and is counted here for the chosen time.
  const all = records.map(({ good_percent: _, ...one }) => one);
  all.sort((one, other) => ASPECT_ORDER.indexOf(one.aspect) - ASPECT_ORDER.indexOf(other.aspect));
  return { records: all, changes };
}

/** The records with what they were until now. */
function lived({ records, changes }) {
  return records.map((one) => ({ ...one, segments: segmentsOf(one, changes, Date.now()) }));
}

/** How a job, or a worker, is and was: one strip for all, one for each of its places, and the changes. */
export function healthTab(page, of) {
  const look = { range: RANGES[page.query.get("over")] ? page.query.get("over") : "week" };
  const place = of.job ? "worker" : "job";
  const cells = {
    job: ({ job }) => (job === "" ? "the worker" : a(page.link("jobs", [job]), said(job))),
    aspect: ({ aspect }) => ASPECT_NAMES[aspect],
  };
  const places = dataTable({
    caption: "places",
    name: "places",
    columns: [place, "aspect", "state", "strip", "well", "changes"],
    labels: { strip: "Over time" },
    cells: {
      ...cells,
      state: (row) => stateCell(page, row),
      strip: (row) => strip(`${row[place] || "the worker"}, ${ASPECT_NAMES[row.aspect]}`, [row.segments], look.range),
      well: ({ well }) => well !== "" && el("span.whole", percentText(well)),
    },
    keyOf: ({ job, worker, aspect }) => `${job}@${worker} ${aspect}`,
  });
  const changes = dataTable({
    caption: "changes",
    name: "changes",
    columns: ["at", place, "aspect", "state", "reason", "run_id"],
    labels: { at: "When", run_id: "Found by" },
    cells,
    stateColumn: "",
    none: "Nothing has changed.",
  });
  const options = Object.entries(RANGES).map(([name, { label }]) => [name, label]);
  const choose = (value) => {
    look.range = value;
    keepQuery({ over: value });
    part.draw();
  };
  const part = region(() => readHealth(page, of), draw, { name: "section.stack" });

  function draw(data) {
    if (data.records.length === 0) return el("p.notice.panel", NOTHING_KNOWN);
    const rows = lived(data);
    const over = choice("Over the last", options, look.range, choose);
    return [
      el("div.spread", { key: "over" }, el("div", aspectsOf(rows, of, look.range)), over),
      places.with(rows.map((row) => ({ ...row, ...countedIn(row, look.range) }))),
      el("h2", { key: "title" }, "Changes"),
      changes.with(data.changes),
    ];
  }
  return part;
}

/** The strips of a job or a worker alone, for the head of its page; nothing where nothing is known. */
export function healthGlance(page, of) {
  const draw = (data) =>
    data.records.length > 0 && el("section.panel.pad", { "aria-label": "Health" }, aspectsOf(lived(data), of, "week"));
  return region(() => readHealth(page, of), draw, { rows: 1 });
}

function countedIn({ segments }, range) {
  const { good, changes } = stripOf([segments], range, Date.now());
  return { well: good ?? "", changes };
}

/** A strip for each thing that is watched, over all places. */
function aspectsOf(rows, of, range) {
  return [...Map.groupBy(rows, ({ aspect, job }) => `${job === "" ? "" : "job "}${aspect}`)].map(([key, own]) => {
    const [{ aspect, job }] = own;
    const name = of.worker && job !== "" ? `${ASPECT_NAMES[aspect]} of its jobs` : ASPECT_NAMES[aspect];
    const places = own.map(({ segments }) => segments);
    const told = el("span.meta", " · ", stripText(stripOf(places, range, Date.now()), range));
    const bars = strip(`${of.job ?? of.worker}, ${name}`, places, range);
    return el("div.health-row", { key }, el("b", name), bars, el("span", stateNow(own), told));
  });
}

/** `unhealthy on 2 of 40 since 03:14`. */
function stateNow(own) {
  const bad = own.filter((one) => !isGood(one.state));
  const [oldest] = (bad.length > 0 ? bad : own).toSorted((one, other) => one.at.localeCompare(other.at));
  const many = bad.length > 0 && own.length > 1 && ` on ${number(bad.length)} of ${number(own.length)}`;
  const from = (bad.length > 0 || own.length === 1) && [" ", el("span.meta", since(oldest.at))];
  return [state(oldest.state), many, from];
}

/** The state since when, and why where it is no good one. */
function stateCell(page, { state: word, at, reason, run_id: id }) {
  const from = [" ", el("span.meta.whole", since(at))];
  if (isGood(word)) return [state(word), from];
  return [a(page.link("runs", [id]), state(word)), from, reason && el("p.small", said(reason))];
}

/** Of a bar with its gap, and of a strip. */
const [PITCH, HEIGHT, LEAST_BAR] = [5, 18, 5];

/**
 * Bars from the past to now: pale where all was well, coloured from below for the share of the time that it was not, low
 * where nothing is known.
 * @param {string} name of what it is about
 * @param {Parameters<typeof stripOf>[0]} places
 * @param {keyof typeof RANGES} range
 */
function strip(name, places, range) {
  const found = stripOf(places, range, Date.now());
  const width = PITCH * found.bars.length;
  const columns = (known, y, height) =>
    found.bars.map(({ isKnown }, index) => (isKnown === known ? column(index, y, height) : "")).join("");
  const bad = found.bars.map(({ state, bad: share, from, to }, index) => {
    if (state === "") return null;
    const height = Math.max(LEAST_BAR, share * HEIGHT);
    const says = `${clockTime(from)} to ${clockTime(to)}: ${state.replaceAll("_", " ")} ${percentText(share)} of the time`;
    return svg("path", { class: markOf(state), d: column(index, HEIGHT - height, height) }, svg("title", plain(says)));
  });
  const spoken = { role: "img", "aria-label": `${plain(name)}, ${stripText(found, range)}` };
  return svg(
    "svg.bars",
    { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", ...spoken },
    svg("path.ok", { d: columns(true, 0, HEIGHT) }),
    svg("path.unknown", { d: columns(false, HEIGHT - 2, 2) }),
    bad,
  );
}

function column(index, y, height) {
  return `M${index * PITCH} ${y}h${PITCH - 1}v${height}h-${PITCH - 1}z`;
}

/** `well 99.2 % of the time known in 7 days, 3 changes`. */
function stripText({ good, changes }, range) {
  if (good === null) return "nothing is known";
  return `well ${percentText(good)} of the time known in ${RANGES[range].label}, ${changes === 0 ? "no change" : count(changes, "change")}`;
}
