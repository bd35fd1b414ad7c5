import { button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { count, number, plain, said } from "../base/text.js";
import { choice } from "./form.js";
import { gridOf, rowHead } from "./map/grid.js";
import {
  bandsOf,
  cornerOf,
  cutNames,
  groupings,
  isWell,
  labelled,
  merged,
  ordered,
  reached,
  STATES,
  tally,
  total,
  whereabouts,
} from "./map/model.js";
import { allocationPanel, placesPanel, readAllocation } from "./map/panel.js";
import { chips } from "./state.js";
import { dataTable } from "./table.js";

/** More workers stand in cells together; on a phone all do. */
const [MOST_WORKERS, MOST_COLUMNS, ON_PHONE] = [60, 28, 6];
/** More rows fold where nothing is the matter with them; more cells are never drawn. */
const [MOST_ROWS, ROWS_ON_PHONE, MOST_CELLS] = [40, 8, 2_400];
const WORDS = { w: "waiting for a deploy" };
const FOLDED = "ok";
const phone = matchMedia("(width < 700px)");

/**
 * The map of jobs and workers: which allocation is in which state. A cell opens what is known of it; a chip of the legend
 * shows the same allocations as a table.
 * @param {any} page
 * @param {{ sinceOf: (job: string, worker: string) => string, retry: (job: string) => any }} options
 */
export function jobMap(page, options) {
  const look = {
    sinceOf: options.sinceOf,
    map: null,
    jobs: [],
    reached: new Map(),
    by: preference("map by", "name"),
    isUnfolded: false,
    chosen: new Set(),
    opened: null,
    isLive: false,
    order: [],
  };
  const openOne = (job, worker) => open({ job, worker });
  const grid = gridOf({
    label: "Jobs on workers",
    onOpen: ({ job, open: act, places }, column) => (act ? act() : open({ job, ...places(column) })),
  });
  const table = dataTable({
    caption: "Allocations",
    name: "map",
    columns: ["job", "worker", "state", "version"],
    cells: { worker: ({ job, worker }) => button(said(worker), () => openOne(job, worker), { class: "plain" }) },
    keyOf: ({ job, worker }) => `${job}@${worker}`,
  });
  const [head, panel] = [el("div"), el("section.panel.opened", { "aria-label": "Allocation", tabindex: -1, hidden: true })];
  const element = el("section.map", head, grid.element, table.element, panel);
  element.own = true;
  element.hidden = true;
  phone.addEventListener("change", draw, { signal: page.signal });
  element.onkeydown = ({ key }) => key === "Escape" && look.opened && close();

  async function open(what) {
    look.opened = { ...what, isNew: true };
    await readOpened();
    panel.scrollIntoView({ block: "nearest" });
  }

  /** Reads the allocation that is open; what was read before stays in sight. */
  async function readOpened() {
    const { opened } = look;
    if (opened?.worker)
      try {
        opened.one = await readAllocation(page, opened.job, opened.worker);
      } catch (error) {
        opened.problem = error.message;
      }
    if (look.opened === opened) draw();
  }

  function close() {
    look.opened = null;
    draw();
    if (look.chosen.size === 0) grid.focus();
  }

  function draw() {
    if (!look.map) return;
    element.hidden = false;
    const isTable = look.chosen.size > 0;
    patch(head, legendOf(look, draw));
    grid.element.hidden = isTable;
    table.element.hidden = !isTable;
    if (isTable) table.show(chosenIn(look));
    else grid.show(modelOf(page, look, draw));
    panel.hidden = look.opened === null;
    if (!look.opened) return;
    patch(panel, panelOf(page, look, options, { openOne, close }));
    if (look.opened.isNew) panel.focus({ preventScroll: true });
    look.opened.isNew = false;
  }

  return {
    element,
    /** Shows what the server has said of all allocations. */
    show(map) {
      look.map = { ...map, workers: labelled(map.workers) };
      look.reached = look.isLive ? look.reached : new Map();
      take(look);
      draw();
      readOpened();
    },
    /** Shows what a run has reached since then; null: no run goes on. */
    follow(rollouts) {
      look.isLive = rollouts !== null;
      if (rollouts) look.reached = reached(look.reached, rollouts);
      take(look);
      draw();
    },
    /** How many allocations are in which state, by letter. */
    counts: () => total(look.jobs.map(({ counts }) => counts)),
    /** The workers of a job with one of these letters. */
    workersOf(job, letters) {
      const { cells = "" } = look.jobs.find((one) => one.job === job) ?? {};
      return [...cells].flatMap((mark, at) => (letters.includes(mark.toLowerCase()) ? look.map.workers[at].worker : []));
    },
    /** Where workers are, in words. */
    whereOf: (names) => (look.map ? whereabouts(names, look.map.workers) : ""),
    countsOf: (job) => look.jobs.find((one) => one.job === job)?.counts ?? {},
  };
}

/** Rows keep their places while a run goes on, and while somebody is in them. */
function take(look) {
  if (!look.map) return;
  const { workers, jobs } = look.map;
  const indexOf = new Map(workers.map(({ worker }, index) => [worker, index]));
  look.jobs = jobs.map((one) => {
    const cells = merged(one.cells, indexOf, look.reached.get(one.job));
    return { ...one, cells, counts: tally(cells) };
  });
  const isBusy = look.isLive || document.activeElement?.closest(".map") !== null;
  const known = new Set(look.order);
  const isSame = known.size === jobs.length && jobs.every(({ job }) => known.has(job));
  if (!isBusy || !isSame) look.order = ordered(look.jobs).map(({ job }) => job);
  const byName = new Map(look.jobs.map((one) => [one.job, one]));
  look.jobs = look.order.map((job) => byName.get(job));
}

function legendOf(look, draw) {
  const { workers, jobs, cut } = look.map;
  const counts = total(look.jobs.map((one) => one.counts));
  const letters = Object.keys(STATES).filter((letter) => counts[letter] > 0);
  const items = letters.map((letter) => {
    const word = STATES[letter];
    return { word, count: counts[letter], text: WORDS[letter], sign: el("span.cell", { class: word }) };
  });
  if (counts.hand > 0) items.push({ word: "hand", count: counts.hand, text: "by hand", sign: el("span.cell.hand") });
  const left = [cut?.jobs > 0 && count(cut.jobs, "job"), cut?.workers > 0 && count(cut.workers, "worker")].filter(Boolean);
  return el(
    "header.legend",
    el("h2", "Jobs on workers"),
    el("span.meta", `${count(jobs.length, "job")} × ${count(workers.length, "worker")}`),
    left.length > 0 && el("span.badge.soon", `${left.join(" and ")} more are not in this map`),
    groupingChoice(look, draw),
    chips(items, look.chosen, draw),
  );
}

function groupingChoice(look, draw) {
  const names = groupings(look.map.workers);
  if (!names.includes(look.by)) look.by = "name";
  const choose = (name) => {
    look.by = name;
    prefer("map by", name);
    draw();
  };
  if (names.length === 1) return null;
  if (names.length > 4) {
    const options = names.map((name) => [name, plain(name)]);
    return choice("by", options, look.by, choose);
  }
  const buttons = names.map((name) =>
    button(plain(name), () => choose(name), { class: "small", "aria-pressed": String(name === look.by) }),
  );
  return el("span.by", "by ", el("span.choice", { role: "group", "aria-label": "Workers by" }, buttons));
}

function modelOf(page, look, draw) {
  const { workers } = look.map;
  const isMany = phone.matches || workers.length > MOST_WORKERS;
  const most = phone.matches ? ON_PHONE : MOST_COLUMNS;
  const bands = bandsOf(workers, look.by, isMany ? most : undefined);
  const columns = bands.flatMap((band) => band.columns.map((one) => ({ ...one, band: band.label })));
  const limit = phone.matches ? ROWS_ON_PHONE : MOST_ROWS;
  const fit = Math.floor(MOST_CELLS / Math.max(1, columns.length));
  const isWhole = look.jobs.length <= limit;
  const well = isWhole ? [] : look.jobs.filter(isWell);
  const shown = (isWhole || look.isUnfolded ? look.jobs : look.jobs.filter((one) => !isWell(one))).slice(0, fit);
  const rows = shown.map((job) => jobRowOf(page, job, columns, look));
  if (well.length > 0) rows.push(groupFold(look, well, columns, draw));
  const left = look.jobs.length - shown.length - (look.isUnfolded ? 0 : well.length);
  if (left > 0) rows.push(moreOf(page, left, columns));
  return { bands, corner: isMany ? "" : cornerOf(cutNames(workers.map(({ worker }) => worker))), rows, isMany };
}

function jobRowOf(page, { job, cells, counts }, columns, { map, sinceOf }) {
  const tallies = columns.map(({ of }) => tally(of.map((at) => cells[at]).join("")));
  const spoken = (column) => {
    const { of, label, band } = columns[column];
    if (of.length > 1) return `${plain(job)} on ${plain([band, label].filter(Boolean).join(" "))}, ${wordsOf(tallies[column])}`;
    const { worker } = map.workers[of[0]];
    const begun = sinceOf(job, worker);
    return [`${plain(job)} on ${plain(worker)}`, wordsOf(tallies[column], 1), begun && `since ${begun}`]
      .filter(Boolean)
      .join(", ");
  };
  const link = el("a", { href: page.link("jobs", [job]), tabindex: -1, title: plain(job) }, said(job));
  const places = (column) => {
    const { of, label, band } = columns[column];
    return of.length === 1 ? { worker: map.workers[of[0]].worker } : { of, name: [band, label].filter(Boolean).join(" ") };
  };
  return { key: job, head: rowHead(counts, link), cells: tallies, spoken, job, places };
}

function wordsOf(counts, size = 0) {
  const told = Object.keys(STATES).filter((letter) => counts[letter] > 0);
  const states = told.map((letter) => (size === 1 ? STATES[letter] : `${number(counts[letter])} ${STATES[letter]}`));
  if (counts.hand > 0) states.push("changed by hand");
  return states.join(", ") || "not here";
}

function groupFold(look, well, columns, draw) {
  const unfold = () => {
    look.isUnfolded = !look.isUnfolded;
    draw();
  };
  const cells = columns.map((_, column) =>
    total(well.map((one) => tally(columns[column].of.map((at) => one.cells[at]).join("")))),
  );
  const attributes = { class: "plain", tabindex: -1, "aria-expanded": String(look.isUnfolded) };
  const head = button(`${look.isUnfolded ? "▾" : "▸"} ${count(well.length, "job")} ${FOLDED}`, unfold, attributes);
  return {
    key: "well",
    head,
    cells,
    spoken: (column) => `${count(well.length, "job")}, ${wordsOf(cells[column])}`,
    open: unfold,
  };
}

function moreOf(page, left, columns) {
  const head = el("a", { href: page.link("jobs"), tabindex: -1 }, `${count(left, "more job")}`);
  const open = () => {
    location.hash = page.link("jobs");
  };
  return { key: "more", head, cells: columns.map(() => ({ hand: 0 })), spoken: () => "in the list of jobs", open };
}

function chosenIn(look) {
  const isChosen = (mark) =>
    look.chosen.has(STATES[mark.toLowerCase()]) || (look.chosen.has("hand") && mark !== mark.toLowerCase());
  return look.jobs.flatMap(({ job, cells, version }) =>
    [...cells].flatMap((mark, at) => {
      if (mark === " " || !isChosen(mark)) return [];
      return { job, worker: look.map.workers[at].worker, state: STATES[mark.toLowerCase()], version };
    }),
  );
}

function panelOf(page, look, { retry }, { openOne, close }) {
  const { job, worker, of, name, one, problem } = look.opened;
  const row = look.jobs.find((found) => found.job === job);
  if (problem || !row)
    return el("p.pad.error", problem ?? "This job is no longer in the map.", " ", button("Close", close, { class: "small" }));
  const parts = cutNames(look.map.workers.map((known) => known.worker));
  if (of) {
    const places = of.map((at) => ({ worker: look.map.workers[at].worker, label: parts[at].tail, letter: row.cells[at] }));
    const isBroken = places.some(({ letter }) => letter.toLowerCase() === "f");
    return placesPanel(page, { job, name }, places, {
      onOpen: (chosen) => openOne(job, chosen),
      onClose: close,
      controls: isBroken && retry(job),
    });
  }
  if (!one) return null;
  const letter = row.cells[look.map.workers.findIndex((known) => known.worker === worker)] ?? " ";
  const now = STATES[letter.toLowerCase()] ?? one.state;
  return allocationPanel(page, { ...one, state: now }, { onClose: close, controls: now === "failed" && retry(job) });
}
