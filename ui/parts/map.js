import { button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { count, plain, said } from "../base/text.js";
import { choice, choiceBar } from "./form.js";
import { gridOf, modelOf } from "./map/grid.js";
import { cutNames, groupings, jobsNow, labelled, lettersIn, ordered, reached, STATES, total, whereabouts } from "./map/model.js";
import { allocationPanel, placesPanel, readAllocation } from "./map/panel.js";
import { chips } from "./state.js";
import { dataTable } from "./table.js";

const phone = matchMedia("(width < 700px)");

/**
 * The map of jobs and workers: which allocation is in which state. A cell opens what is known of it; a chip of the legend
 * shows the same allocations as a table.
 * @param {any} page
 * @param {{ sinceOf: (job: string, worker: string) => string, retry: (job: string) => any }} options
 */
export function jobMap(page, options) {
  const look = {
    map: null,
    jobs: [],
    order: [],
    reached: new Map(),
    left: new Set(),
    isLive: false,
    by: preference("map by", "name"),
    isUnfolded: false,
    chosen: new Set(),
    opened: null,
  };
  const openOne = (job, worker) => open({ job, worker });
  const grid = gridOf("Jobs on workers");
  const table = dataTable({
    caption: "Allocations",
    name: "map",
    columns: ["job", "worker", "state", "version"],
    stateColumn: "",
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
    else grid.show(modelOf(page, look, phone.matches, { ...options, open, draw }));
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
    /** Shows what the run that goes on, if any, has reached since then. What a forced deploy, or `every` one, has not begun waits. */
    follow(run, every = run?.params.force) {
      if (!run && !look.isLive) return;
      const { rollouts = [], jobs = [] } = run?.progress ?? {};
      look.isLive = Boolean(run);
      look.reached = reached(look.reached, rollouts);
      look.left = new Set(jobs.flatMap(({ job, state }) => (every && state === "waiting" ? job : [])));
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
  look.jobs = jobsNow(look.map, look.reached, look.left);
  const isBusy = look.isLive || document.activeElement?.closest(".map") !== null;
  const known = new Set(look.order);
  const isSame = known.size === look.jobs.length && look.jobs.every(({ job }) => known.has(job));
  if (!isBusy || !isSame) look.order = ordered(look.jobs).map(({ job }) => job);
  const byName = new Map(look.jobs.map((one) => [one.job, one]));
  look.jobs = look.order.map((job) => byName.get(job));
}

function legendOf(look, draw) {
  const { workers, jobs, cut } = look.map;
  const counts = total(look.jobs.map((one) => one.counts));
  const texts = { waiting: "waiting for a deploy", hand: "by hand" };
  const items = [...lettersIn(counts), ...(counts.hand > 0 ? ["hand"] : [])].map((letter) => {
    const word = STATES[letter] ?? letter;
    return { word, count: counts[letter], text: texts[word], sign: el("span.cell", { class: word }) };
  });
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
  const options = names.map((name) => [name, plain(name)]);
  if (names.length === 1) return null;
  if (names.length > 4) return choice("by", options, look.by, choose);
  return el("span.by", "by ", choiceBar("Workers by", options, look.by, choose));
}

function chosenIn({ jobs, chosen, map }) {
  const isChosen = (mark, state) => chosen.has(state) || (chosen.has("hand") && mark !== mark.toLowerCase());
  return jobs.flatMap(({ job, cells, version }) =>
    [...cells].flatMap((mark, at) => {
      const state = stateAt(cells, at);
      return state && isChosen(mark, state) ? { job, worker: map.workers[at].worker, state, version } : [];
    }),
  );
}

/** The state of a job on the worker at a place; undefined where it is not there. */
function stateAt(cells, at) {
  return STATES[cells[at]?.toLowerCase()];
}

function panelOf(page, look, { retry }, { openOne, close }) {
  const { job, worker, of, name, one, problem } = look.opened;
  const { workers } = look.map;
  const row = look.jobs.find((found) => found.job === job);
  const onOpen = (chosen) => openOne(job, chosen);
  const parts = (state) => ({ onOpen, onClose: close, controls: state === "failed" && retry(job) });
  if (problem || !row)
    return el("p.pad.error", problem ?? "This job is no longer in the map.", " ", button("Close", close, { class: "small" }));
  if (worker) {
    const at = workers.findIndex((known) => known.worker === worker);
    const state = stateAt(row.cells, at) ?? one?.state;
    return one && allocationPanel(page, { ...one, state }, parts(state));
  }
  const names = cutNames(workers.map((known) => known.worker));
  const places = of.map((at) => ({ worker: workers[at].worker, label: names[at].tail, state: stateAt(row.cells, at) }));
  const isBroken = places.some(({ state }) => state === "failed");
  return placesPanel(page, { job, name }, places, parts(isBroken && "failed"));
}
