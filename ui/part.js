import { alertPlace, el, tell } from "./dom.js";
import { dataTable } from "./table.js";

/**
 * A part of a view with a heading of its own. `refresh` reads it and draws it again where something has changed; what
 * goes wrong is said there, and the rest of the view goes on. `draw` gets what `read` answered and gives the elements.
 */
export function part(title, read, draw, { tools = [], level = "h2" } = {}) {
  const problem = alertPlace();
  const body = el("div", { class: "body" }, el("p", { class: "hint" }, "Reading …"));
  const header = el(
    "header",
    {},
    title === "" ? null : el(level, {}, title),
    el("div", { class: "controls" }, ...tools),
  );
  const element = el("section", { class: "part" }, header, problem, body);
  let shown;
  async function refresh() {
    try {
      const data = await read();
      tell(problem, "");
      const content = JSON.stringify(data) ?? "";
      if (content === shown) return;
      shown = content;
      body.replaceChildren(...[draw(data)].flat().filter((node) => node !== null));
    } catch (error) {
      tell(problem, error.message);
      if (shown === undefined) body.replaceChildren();
    }
  }
  return { element, refresh };
}

/** A part that is a table; `read` answers its rows, `options` are those of a table. */
export function tablePart(title, read, options, tools) {
  const table = dataTable(options);
  const draw = (rows) => {
    table.show(rows);
    return table.element;
  };
  return part(title, read, draw, { tools });
}

/** A view made of parts below one heading. */
export function viewOfParts(main, title, parts, above = []) {
  main.replaceChildren(el("h1", {}, title), ...above, ...parts.map(({ element }) => element));
  return { title, refresh: () => Promise.all(parts.map((one) => one.refresh())) };
}

/** A sentence where there is nothing to show: what that means and what to do. */
export function nothing(...text) {
  return el("p", { class: "notice" }, ...text);
}
