import { address, keepQuery, link } from "../base/api.js";
import { button, el, facts, patch } from "../base/dom.js";
import { ago, count, duration, fits, number, plain, said, size, words } from "../base/text.js";
import { shortId } from "./dialog.js";
import { tellingLine } from "./map/reason.js";
import { region } from "./region.js";
import { byName, byTrouble, chips, state } from "./state.js";

/** So many rows are on the page at first, and come with each `Show more`. */
const ROWS_AT_ONCE = 200;
/** So many of them are drawn in one frame: the page answers between the frames. */
const ROWS_A_FRAME = 30;
const LABELS = {
  size_bytes: "Size",
  worker_ip: "Worker",
  deployment_seq: "Wave",
  cpu: "CPU",
  cpu_mhz: "CPU MHz",
  memory_mb: "Memory MB",
  ttl: "TTL",
  rollout: "State",
  current_version: "Runs",
  new_version: "Target",
  sha256: "SHA-256",
  cert: "Certificate",
  actions: "",
  aspect: "What",
};
const TIME_NAMES = /_(at|on)$/;
const IDS = /(^|_)(id|hash|sha256|revision)$/;
const STATE = /^(state|status|outcome|rollout|gate|drift|build_status|last_outcome)$/;
/** How a value is shown, by the name of its column. */
const FORMS = [
  [STATE, (word) => state(word)],
  [/^job$/, (job) => el("a", { href: link(address().bucketId, "jobs", [job]) }, job)],
  [/_bytes$/, size],
  [/_ms$/, duration],
  [/_(s|seconds)$/, (seconds) => duration(seconds * 1000)],
  [/^last_run$|^run_id$/, (id) => el("a.code", { href: link(address().bucketId, "runs", [id]) }, `…${id.slice(-8)}`)],
  [/^worker$/, (worker) => el("a", { href: link(address().bucketId, "workers", [worker]) }, said(worker))],
  [/reason$/, reasonLine],
  [IDS, shortId],
  [/_(at|date)$|^(at|not_after)$/, ago],
];

/** The line of a reason that says most; the pointer shows all. */
export function reasonLine(text) {
  return text && el("code.reason", { tabindex: 0, title: plain(text) }, said(tellingLine(text)));
}

/** The name of a column for people. */
function labelOf(name) {
  return LABELS[name] ?? words(name.replace(TIME_NAMES, ""));
}

/** A value for people. */
export function cellText(name, value) {
  if ((value ?? "") === "") return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && !value.some(isNested)) return said(value.join(", ") || "none");
  if (typeof value === "object") return isNested(value) ? el("code", said(JSON.stringify(value))) : "";
  const [, form] = FORMS.find(([names]) => /** @type {RegExp} */ (names).test(name)) ?? [];
  return /** @type {any} */ (form)?.(value) ?? (typeof value === "number" && !/port$/.test(name) ? number(value) : said(value));
}

function isNested(value) {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

/** Any value for people: facts, lists and tables. */
export function dataOf(value, title = "Result") {
  if (!isNested(value)) return el("p", cellText("", value) || "nothing");
  if (Array.isArray(value)) {
    if (value.some(isNested))
      return dataTable({ caption: title, name: title, columns: columnsOf(value), stateColumn: "" }).with(value);
    return el("ul", ...value.map((one) => el("li", said(one))));
  }
  const entries = Object.entries(value);
  const plainOnes = entries.filter(([, one]) => !isNested(one));
  const nested = entries.filter(([, one]) => isNested(one));
  return el(
    "div.stack",
    facts(plainOnes.map(([name, one]) => [labelOf(name), cellText(name, one)])),
    ...nested.map(([name, one]) => el("section", el("h2", labelOf(name)), dataOf(one, labelOf(name)))),
  );
}

function columnsOf(rows) {
  return Object.keys(Object.assign({}, ...rows.map((row) => (isNested(row) ? row : { value: row }))));
}

/**
 * A table with a filter, chips for its states, an order by any column, and the rows in pages. Filter, chips and order are
 * kept in the address.
 * @param {object} options
 * @param {string} options.caption for screen readers
 * @param {string[]} [options.columns] by default those of the first row
 * @param {Record<string, (row: any) => any>} [options.cells] how cells are shown, by column
 * @param {Record<string, string>} [options.labels] heads that differ from the column's name
 * @param {string} [options.name] of its part of the address, where a view has several tables
 * @param {string} [options.stateColumn] has chips: `state` by default; none where it is empty
 * @param {any} [options.none] stands where there is no row
 * @param {any} [options.tools] stands beside the filter
 * @param {(row: any) => string} [options.keyOf] of a row, by default its id: rows that stay keep their elements
 */
export function dataTable({
  caption,
  columns,
  cells = {},
  labels = {},
  name = "",
  stateColumn = columns?.includes("state") ? "state" : undefined,
  none = "There is none.",
  tools,
  keyOf = ({ id }) => id,
}) {
  const inQuery = (key) => (name === "" ? key : `${name}.${key}`);
  const given = (key) => address().query.get(inQuery(key)) ?? "";
  const look = {
    rows: [],
    cut: false,
    typed: given("q"),
    chosen: new Set(given("state").split(",").filter(Boolean)),
    sort: given("sort"),
    visible: ROWS_AT_ONCE,
    drawn: ROWS_A_FRAME,
    frame: 0,
  };
  const search = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${caption}`, oninput: typed });
  search.value = look.typed;
  const [bar, tally, body] = [el("span"), el("span.small", { role: "status" }), el("div")];
  const element = el("div.panel.listing", el("div.filters", search, bar, tally, tools), body);
  element.own = true;

  function typed() {
    look.typed = search.value;
    changed();
  }

  function changed() {
    look.visible = ROWS_AT_ONCE;
    keepQuery({ [inQuery("q")]: look.typed, [inQuery("state")]: [...look.chosen].join(), [inQuery("sort")]: look.sort });
    draw();
  }

  function sortBy(key) {
    look.sort = look.sort === key ? `-${key}` : key;
    changed();
  }

  function draw() {
    cancelAnimationFrame(look.frame);
    const keys = columns ?? columnsOf(look.rows);
    const matching = look.rows.filter((row) => matches(row, keys, look, stateColumn));
    const found = sorted(matching, look.sort, stateColumn);
    if (stateColumn) patch(bar, chips(statesIn(look.rows, stateColumn), look.chosen, changed));
    const all = `${number(look.rows.length)}${look.cut ? " or more" : ""}`;
    tally.textContent = found.length === look.rows.length ? count(look.rows.length, "row") : `${number(found.length)} of ${all}`;
    if (look.cut) tally.textContent += ", cut: filter for the rest";
    if (look.rows.length === 0) return patch(body, el("div.notice", none));
    if (found.length === 0) return patch(body, el("p.notice", "Nothing matches the filter."));
    const heads = keys.map((key) => columnHead(key, labels[key] ?? labelOf(key), look, sortBy));
    const visible = found.slice(0, look.visible);
    const rowOf = (row) => tableRow(row, keys, { cells, labels, keyOf });
    const rows = visible.slice(0, look.drawn).map(rowOf);
    const more = found.length - look.visible;
    patch(
      body,
      el("div.table", el("table", el("caption.unseen", caption), el("thead", el("tr", heads)), el("tbody", rows))),
      more > 0 && button(`Show ${number(Math.min(ROWS_AT_ONCE, more))} more of ${number(more)}`, showMore, { class: "quiet" }),
    );
    drawRest(visible, rowOf);
  }

  function drawRest(visible, rowOf) {
    if (look.drawn >= visible.length) return;
    look.frame = requestAnimationFrame(() => {
      const from = look.drawn;
      look.drawn += ROWS_A_FRAME;
      body.querySelector("tbody").append(...visible.slice(from, look.drawn).map(rowOf));
      drawRest(visible, rowOf);
    });
  }

  function showMore() {
    look.visible += ROWS_AT_ONCE;
    draw();
  }

  return {
    element,
    /** Shows these rows; a list that is `cut` says so. */
    show(rows) {
      Object.assign(look, { rows, cut: Boolean(rows.cut) });
      draw();
    },
    /** The element with these rows. */
    with(rows) {
      this.show(rows);
      return element;
    },
  };
}

/** A table that reads its rows. @param {() => Promise<any[]>} read @param {Parameters<typeof dataTable>[0]} options */
export function listing(read, options) {
  const table = dataTable(options);
  return region(read, (rows) => table.with(rows));
}

/**
 * A table of the newest rows, which reads as many more when it is asked.
 * @param {number} step how many
 * @param {(most: number) => Promise<any>} read rows, at most so many; `cut` where there are more
 * @param {Parameters<typeof dataTable>[0]} options
 */
export function newest(step, read, options) {
  const look = { most: step };
  const table = dataTable(options);
  const readMost = async () => {
    const rows = await read(look.most);
    return { rows: rows.slice(0, look.most), isCut: rows.cut || rows.length > look.most };
  };
  const draw = ({ rows, isCut }) => {
    const note = el("p.meta", `The ${number(rows.length)} newest are shown.`);
    const more = () => again(look.most + step);
    return [table.with(rows), isCut && el("div.controls", { key: "more" }, note, button("Show more", more))];
  };
  const list = region(readMost, draw);
  const again = (most = step) => {
    look.most = most;
    list.refresh();
  };
  return { ...list, again };
}

function statesIn(rows, column) {
  const found = Map.groupBy(rows, (row) => String(row[column] ?? ""));
  const words = [...found.keys()].filter(Boolean).sort(byTrouble);
  return words.map((word) => ({ word, count: found.get(word).length }));
}

function matches(row, keys, { typed, chosen }, stateColumn) {
  if (chosen.size > 0 && !chosen.has(String(row[stateColumn] ?? ""))) return false;
  if (typed === "") return true;
  return fits(keys.map((key) => textOf(row[key])).join(" "), typed);
}

function textOf(value) {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
}

/** In the order that was asked for, else what is broken first. */
function sorted(rows, sort, stateColumn = "") {
  if (sort === "" && stateColumn === "") return rows;
  if (sort === "") return rows.toSorted((one, other) => byTrouble(String(one[stateColumn]), String(other[stateColumn])));
  const [by, key] = sort.startsWith("-") ? [-1, sort.slice(1)] : [1, sort];
  const compare = STATE.test(key) ? byTrouble : byName;
  return rows.toSorted((one, other) => by * compare(textOf(one[key]), textOf(other[key])));
}

function columnHead(key, label, { sort, rows }, sortBy) {
  const order = { [key]: "ascending", [`-${key}`]: "descending" }[sort];
  const isNumber = rows.some((row) => typeof row[key] === "number");
  const sorter = button([label, order && (order === "ascending" ? " ↑" : " ↓")], () => sortBy(key), { class: "plain sorter" });
  const named = label === "" ? el("span.unseen", words(key)) : sorter;
  return el("th", { scope: "col", "aria-sort": order, class: isNumber && "number" }, named);
}

/** On a phone there are no heads above numbers, lists and several times: each has its label before it. */
function tableRow(row, keys, { cells, labels, keyOf }) {
  const areTimes = keys.filter((key) => TIME_NAMES.test(key)).length > 1;
  const all = keys.map((key, index) => {
    const isNumber = typeof row[key] === "number";
    const isTold = isNumber || Array.isArray(row[key]) || (areTimes && TIME_NAMES.test(key));
    const label = isTold && (labels[key] ?? labelOf(key));
    const kind = isNumber ? "number" : key === "actions" && key;
    const attributes = { scope: index === 0 && "row", class: kind, "data-label": label };
    return el(index === 0 ? "th" : "td", attributes, cells[key] ? cells[key](row) : cellText(key, row[key]));
  });
  return el("tr", { key: keyOf(row) }, all);
}

/** Lines of a unified difference. */
export function diffOf(text) {
  const kindOf = (line) => (/^(\+\+\+|---|@@)/.test(line) ? "place" : { "+": "added", "-": "removed" }[line[0]]);
  const lines = text.replace(/\n$/, "").split("\n");
  return el("pre.diff", { tabindex: 0 }, ...lines.map((line) => el("span", { class: kindOf(line) }, said(line || " "))));
}
