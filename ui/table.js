import { address, keepQuery } from "./address.js";
import { button, drawList, el } from "./dom.js";
import { choice, optionsOf } from "./fields.js";
import { count } from "./format.js";

const PAGE = 200;
const ORDER = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/**
 * A table with a filter over all cells, facets and sorting; all three are kept in the address. A column is
 * `{key, label?, cell?, text?, number?, facet?}`: `text` is what filter and order see, `cell` what is shown. `rowKey`
 * tells rows apart. Long tables show 200 rows at a time.
 */
export function dataTable({ caption, columns, rowKey, empty }) {
  const { query } = address();
  const search = el("input", {
    ...{ type: "search", placeholder: "Filter", "aria-label": `Filter ${caption}`, "data-search": true },
    value: query.get("q") ?? "",
    oninput: () => changed({ q: search.value }),
  });
  const facets = columns.filter(({ facet }) => facet).map(facetOf);
  const tally = el("span", { class: "hint", role: "status" });
  const heads = columns.map(headOf);
  const body = el("tbody", {});
  const more = button("", () => changed({}, visible + PAGE), { hidden: true });
  const notice = el("p", { class: "notice", hidden: true });
  const scroller = el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, ...heads)),
      body,
    ),
  );
  const tools = el("div", { class: "filters" }, search, ...facets.map(({ element }) => element), tally);
  const element = el("div", { class: "listing" }, tools, notice, scroller, more);
  let rows = [];
  let visible = PAGE;
  let [sortKey, descending] = sortOf(query.get("sort"));

  function facetOf(column) {
    const control = choice([], "", () => changed({ [column.key]: control.value }));
    const element = el("label", { class: "facet" }, `${column.label} `, control);
    return { column, control, element, chosen: query.get(column.key) ?? "" };
  }

  function headOf({ key, label, number }) {
    const sorter = el("button", { type: "button", class: "sorter", onclick: () => sortBy(key) }, label);
    return el("th", { scope: "col", "data-key": key, class: number ? "number" : null }, sorter);
  }

  function sortBy(key) {
    descending = sortKey === key && !descending;
    sortKey = key;
    changed({ sort: `${descending ? "-" : ""}${key}` });
  }

  function changed(changes, shown = PAGE) {
    visible = shown;
    for (const facet of facets) facet.chosen = facet.control.value;
    keepQuery(changes);
    draw();
  }

  function draw() {
    for (const facet of facets) offer(facet, rows);
    const found = rows.filter(matches);
    const column = columns.find(({ key }) => key === sortKey);
    if (column) found.sort((a, b) => compare(column, a, b) * (descending ? -1 : 1));
    for (const head of heads) markSorted(head, sortKey, descending);
    const shown = found.slice(0, visible);
    drawList(body, shown, rowKey, (row) =>
      el("tr", {}, ...columns.map((one, index) => cellOf(one, row, index))),
    );
    tally.textContent =
      found.length === rows.length
        ? count(rows.length, "row")
        : `${found.length} of ${count(rows.length, "row")}`;
    more.hidden = found.length <= visible;
    more.textContent = `Show ${Math.min(PAGE, found.length - visible)} more`;
    scroller.hidden = found.length === 0;
    notice.hidden = found.length > 0;
    if (found.length === 0)
      notice.replaceChildren(...(rows.length === 0 ? [empty].flat() : ["Nothing matches the filter."]));
  }

  function matches(row) {
    const words = search.value
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== "");
    const text = columns
      .map((column) => textOf(column, row))
      .join(" ")
      .toLowerCase();
    return (
      words.every((word) => text.includes(word)) &&
      facets.every(({ column, chosen }) => chosen === "" || textOf(column, row) === chosen)
    );
  }
  return {
    element,
    show(items) {
      rows = items;
      draw();
    },
  };
}

function sortOf(text) {
  return text?.startsWith("-") ? [text.slice(1), true] : [text, false];
}

function textOf({ key, text }, row) {
  const value = text ? text(row) : row[key];
  return value === null || value === undefined ? "" : String(value);
}

function compare(column, a, b) {
  return ORDER.compare(textOf(column, a), textOf(column, b));
}

function cellOf({ key, cell, number }, row, index) {
  const value = cell ? cell(row) : row[key];
  const shown =
    value === null || value === undefined ? "" : typeof value === "object" ? value : String(value);
  const attributes = { class: number ? "number" : null };
  return index === 0
    ? el("th", { scope: "row", ...attributes }, ...[shown].flat())
    : el("td", attributes, ...[shown].flat());
}

function markSorted(head, sortKey, descending) {
  if (head.dataset.key !== sortKey) head.removeAttribute("aria-sort");
  else head.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function offer(facet, rows) {
  const { column, control, chosen } = facet;
  const values = [...new Set(rows.map((row) => textOf(column, row)))]
    .filter((value) => value !== "")
    .sort(ORDER.compare);
  if (chosen !== "" && !values.includes(chosen)) values.push(chosen);
  facet.element.hidden = values.length < 2;
  if (control.dataset.values === values.join("\n") && control.value === chosen) return;
  control.dataset.values = values.join("\n");
  const options = [["", "all"], ...values.map((value) => [value, value.replaceAll("_", " ")])];
  control.replaceChildren(...optionsOf(options, chosen));
}

/** A plain table of rows that are there already. */
export function plainTable(caption, columns, rows) {
  const heads = columns.map(({ label, number }) =>
    el("th", { scope: "col", class: number ? "number" : null }, label),
  );
  const lines = rows.map((row) =>
    el("tr", {}, ...columns.map((column, index) => cellOf(column, row, index))),
  );
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, ...heads)),
      el("tbody", {}, ...lines),
    ),
  );
}
