import { alertPlace, button, el, patch } from "../base/dom.js";
import { said, tell } from "../base/text.js";

/**
 * A region of a view: reads, and draws what was read whenever that has changed. What is on the page stays while it is read
 * again; a failure is told above. Nothing is shown for the first 300 ms, then grey rows.
 * @param {() => any} read
 * @param {(data: any) => any} draw
 * @param {{ name?: string, rows?: number }} [options] `name` of the element: `section.panel`
 * @returns {{ element: HTMLElement, refresh: () => Promise<void>, draw: () => void, data: any }}
 */
export function region(read, draw, { name = "section", rows = 6 } = {}) {
  const problem = alertPlace();
  const body = el("div.stack", { "aria-busy": "true" }, ghosts(rows));
  const one = { element: el(name, problem, body), refresh, draw: redraw, data: undefined };
  let content;

  async function refresh() {
    try {
      const data = await read();
      problem.hidden = true;
      // That a list is cut stands beside its rows.
      const text = JSON.stringify([data, data?.cut]);
      if (content === text) return;
      content = text;
      one.data = data;
      redraw();
    } catch (error) {
      if (error.name === "AbortError") return;
      tell(problem, error.message, " ", button("Try again", refresh, { class: "small" }));
      if (content === undefined) body.replaceChildren();
      body.removeAttribute("aria-busy");
    }
  }

  function redraw() {
    if (one.data === undefined) return;
    body.removeAttribute("aria-busy");
    patch(body, draw(one.data));
    one.element.classList.toggle("headed", body.querySelector(":scope > .head") !== null);
  }
  return one;
}

/** Grey rows that stand for what is being read. */
export function ghosts(rows) {
  return Array.from({ length: rows }, (_, index) => el("div.ghost", { key: `ghost-${index}` }));
}

/**
 * The head of a view.
 * @param {{ title: any, line?: any, mark?: any, controls?: any }} parts
 */
export function head({ title, line, mark, controls }) {
  return el("header.head", el("div", el("h1", mark, title), line && el("p", line)), el("div.controls", controls));
}

/**
 * Tabs, each with an address of its own.
 * @param {Record<string, any>} labels by their names; `[label, count]` where something is counted, and false where there is no
 *   such tab
 */
export function tabs(labels, chosen, linkTo) {
  const shown = Object.entries(labels).filter(([, label]) => label);
  const links = shown.map(([name, label]) => {
    const [text, total] = [label].flat();
    const attributes = { href: linkTo(name), "aria-current": name === chosen && "page" };
    return el("a", attributes, text, total !== undefined && el("small", ` ${total}`));
  });
  return el("nav.tabs", { "aria-label": "Tabs" }, links);
}

/**
 * The tabs of a view, and the function that makes what stands below the chosen one: the first, where the address has none.
 * @param {any} page
 * @param {Record<string, [string, (...about: any[]) => any]>} table by their parts of the address, each with its label
 * @returns {[HTMLElement, (...about: any[]) => any]}
 */
export function tabbed(page, table) {
  const [first] = Object.keys(table);
  const chosen = table[page.rest[0]] ? page.rest[0] : first;
  const labels = Object.fromEntries(Object.entries(table).map(([name, [label]]) => [name, label]));
  return [tabs(labels, chosen, (name) => page.link(page.view, [name])), table[chosen][1]];
}

/**
 * A view: its head, and below it parts. Each is an element or a region; what is on top is read before the others.
 * @param {string} title of the window
 * @param {any} top head and tabs
 * @param {any[]} parts
 */
export function viewOf(title, top, ...parts) {
  const rows = [[top].flat(), parts.flat()];
  const [above, below] = rows.map((row) => row.map((one) => one?.element ?? one));
  const refresh = async () => {
    for (const row of rows) await Promise.all(row.map((one) => one?.refresh?.()));
  };
  return { title, element: el("div", above, el("div.stack", below)), refresh };
}

/** What stands where there is nothing: a sentence, and the order that fills it. */
export function empty(sentence, ...controls) {
  return el("div.notice", el("p", sentence), controls.length > 0 && el("div.controls", controls));
}

/** The head of a page about a thing that is not there. */
export function notThere(name, sentence, way) {
  return [el("h1", said(name)), empty(sentence, way)];
}

/**
 * A fold whose content is made while it is open.
 * @param {{ folds: Map<string, boolean>, draw: () => void }} view remembers which folds are open, and draws again
 * @param {{ key: string, summary: any, open?: boolean, kind?: string | false }} about `open` at first, and a class
 * @param {() => any} content
 */
export function fold(view, { key, summary, open = false, kind }, content) {
  const isOpen = view.folds.get(key) ?? open;
  const ontoggle = ({ target }) => {
    if (target.open === (view.folds.get(key) ?? open)) return;
    view.folds.set(key, target.open);
    view.draw();
  };
  // What becomes open by itself is another element: a patch leaves it to persons what is open.
  const attributes = { key: open ? `${key}, open` : key, open: isOpen, class: kind, ontoggle };
  return el("details.fold", attributes, el("summary", summary), isOpen && content());
}

/** Rows that stand for so many equal things: names, cut after some; a click shows the rest. */
export function rest(view, about, names, draw = (name) => el("li", name)) {
  return fold(view, about, () => el("ul.names", { tabindex: 0 }, names.map(draw)));
}
