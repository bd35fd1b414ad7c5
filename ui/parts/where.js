import { listOf } from "../base/api.js";
import { button, el, patch, scroller } from "../base/dom.js";
import { count, fits, number, said } from "../base/text.js";
import { tickBox, ticking } from "./form.js";
import { mark } from "./state.js";

/**
 * A choice of workers: by label, by name, or those that failed last. All are chosen at first.
 * @param {any} page
 * @param {{ chosen?: string[] | null, troubled?: () => Map<string, string>, onchange?: () => void }} [options]
 *   `troubled`: who failed last or could not be reached, with that word
 */
export function workerChoice(page, { chosen = null, troubled = () => new Map(), onchange = () => {} } = {}) {
  const look = { workers: [], chosen: new Set(chosen ?? []), isFirst: chosen === null, typed: "", failed: "" };
  const element = el("div.where");
  element.own = true;

  const names = () => look.workers.map(({ worker }) => worker);

  async function refresh() {
    const rows = await listOf(page.path("/cat/workers?active=true"));
    look.workers = rows.map(({ worker_ip: worker, labels, hostname }) => {
      return { worker, hostname: hostname ?? "", labels: labels?.split(",").filter(Boolean) ?? [] };
    });
    if (look.isFirst) look.chosen = new Set(names());
    look.isFirst = false;
    draw();
  }

  function set(names) {
    look.chosen = new Set(names);
    changed();
  }

  function changed() {
    draw();
    onchange();
  }

  function draw() {
    const labels = [...new Set(look.workers.flatMap((one) => one.labels))].sort();
    const last = troubled();
    const failed = names().filter((worker) => last.has(worker));
    look.failed = [...last].join();
    const shown = look.workers.filter(({ worker, hostname }) => fits(`${worker} ${hostname}`, look.typed));
    const ticks = shown.map((one) => tickOf(one, last.get(one.worker)));
    const all = count(look.workers.length, "worker");
    const search = el("input", { type: "search", placeholder: `Filter ${all}`, "aria-label": "Filter workers", oninput: filter });
    const choices = [["All", names()], ["None", []], ...(failed.length > 0 ? [["Failed last", failed]] : [])];
    const buttons = choices.map(([label, own]) => button(label, () => set(own), { class: "small" }));
    patch(
      element,
      el("p.spread", el("h2", "Where"), el("span", el("b", number(look.chosen.size)), ` of ${all}`)),
      el("div.chips", { role: "group", "aria-label": "Labels" }, labels.map(chipOf)),
      el("div.controls", search, buttons),
      scroller("Workers", ticks, "div.ticks"),
    );
  }

  function filter({ target }) {
    look.typed = target.value;
    draw();
  }

  function chipOf(label) {
    const own = look.workers.filter(({ labels }) => labels.includes(label)).map(({ worker }) => worker);
    const isChosen = own.length === look.chosen.size && own.every((worker) => look.chosen.has(worker));
    const about = { class: "chip", "aria-pressed": String(isChosen), key: label };
    return button([said(label), el("b", number(own.length))], () => set(own), about);
  }

  function tickOf({ worker, hostname }, outcome) {
    const sign = outcome && [" ", mark(outcome, { label: `${outcome} last` })];
    const label = [said(worker), hostname && el("small", " ", said(hostname)), sign];
    const box = tickBox(label, { value: worker, onchange: ticking(look.chosen, worker, changed) });
    box.key = `${worker} ${look.chosen.has(worker)}`;
    /** @type {any} */ (box).control.checked = look.chosen.has(worker);
    return box;
  }

  return {
    element,
    refresh,
    /** Draws again where other workers have failed last. */
    update() {
      if (look.failed !== [...troubled()].join()) draw();
    },
    /** The names of the chosen workers, in the order of the catalog. */
    chosen: () => names().filter((worker) => look.chosen.has(worker)),
    total: () => look.workers.length,
    /** For a request: nothing where all workers are meant. */
    values() {
      const chosen = this.chosen();
      return chosen.length === look.workers.length ? {} : { workers: chosen };
    },
  };
}
