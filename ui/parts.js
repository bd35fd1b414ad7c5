import { address, keepQuery, link } from "./api.js";
import { picker, runLink, short } from "./controls.js";
import { alertPlace, button, drawList, el, facts, scroller, tell } from "./dom.js";
import { ago, count, duration, size, status, words } from "./format.js";

const PAGE = 200;
const FEW = 8;
const ORDER = new Intl.Collator("en", { numeric: true });
const LABELS = {
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
};
const IDS = /(^|_)(id|hash|sha256|revision)$/;
const STATE = /^(state|status|outcome|rollout|gate|drift|build_status)$/;
const FORMS = [
  [STATE, status],
  [/^job$/, (job) => el("a", { href: link(address().bucketId, "jobs", [job]) }, job)],
  [/_bytes$/, size],
  [/_ms$/, duration],
  [/_(s|seconds)$/, (seconds) => duration(seconds * 1000)],
  [IDS, short],
  [/^last_outcome$/, (word) => status(word, SIGNS[word])],
  [/^last_run$/, (id) => runLink(address().bucketId, id, id.slice(0, 8))],
  [/_(at|date)$|^(at|not_after)$/, ago],
];
const SIGNS = { changed: "ok", not_started: "pending" };
const COUNTED = new RegExp(`${STATE.source}|^(job|worker|worker_ip|zone|executed_on|last_outcome)$`);

function labelOf(name) {
  return name[0] === "@" ? name.slice(1) : (LABELS[name] ?? words(name));
}

/** A part of a view. */
export function part(title, read, draw = dataOf, { tools = [], none = "There is none yet." } = {}) {
  const problem = alertPlace();
  const body = el("div.data", el("p.hint", "Reading …"));
  const header = el("header", title !== "" && el("h2", title), el("div.controls", tools));
  let content;
  async function refresh() {
    try {
      const data = await read();
      tell(problem, "");
      if (content === JSON.stringify(data)) return;
      content = JSON.stringify(data);
      const nodes = [data === null || data.length === 0 ? el("p.notice", none) : draw(data)].flat();
      const shown = nodes.filter((node) => node);
      if (shown.length !== 1 || shown[0] !== body.firstChild) body.replaceChildren(...shown);
    } catch (error) {
      tell(problem, error.message);
      if (content === undefined) body.replaceChildren();
    }
  }
  return { element: el("section.part", header, problem, body), refresh };
}

/** A part that is a table. */
export function listPart(title, read, options) {
  let table;
  const draw = (rows) => {
    table ??= dataTable(rows[0], { caption: title, ...options });
    table.show(rows);
    return table.element;
  };
  return part(title, read, draw, options);
}

/** A table of rows that are there. */
export function tableOf(caption, rows, options) {
  const table = dataTable(Object.assign({}, ...rows), { caption, name: caption.toLowerCase(), ...options });
  table.show(rows);
  return table.element;
}

function dataTable(sample, { caption, cells = {}, name = "", counted = COUNTED, ...options }) {
  const { columns = Object.keys(sample) } = options;
  const inQuery = (key) => (name === "" ? key : `${name}.${key}`);
  const given = (key) => address().query.get(inQuery(key)) ?? "";
  const search = el("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": `Filter ${caption}`,
    value: given("q"),
    oninput: () => changed({ q: search.value }),
  });
  const facets = columns.filter((key) => counted.test(key)).map((key) => facetOf(key, given(key), changed));
  const heads = columns.map((key) => {
    const sorter = el("button.sorter", { type: "button", onclick: () => sortBy(key) }, labelOf(key));
    return el("th", sorter);
  });
  const [tally, body] = [el("span.hint", { role: "status" }), el("tbody")];
  const more = button("", () => changed({ rows: visible + PAGE }));
  const notice = el("p.notice", "Nothing matches the filter.");
  const head = el("thead", el("tr", heads));
  const box = scroller(caption, el("table", el("caption.unseen", caption), head, body));
  const choices = facets.map(({ element }) => element);
  const tools = el("div.filters", search, choices, tally);
  let rows = [];
  let visible = Math.max(PAGE, Number(given("rows")));
  let [, descending, sorted] = /^(-?)(.*)$/.exec(given("sort"));

  function sortBy(key) {
    descending = sorted === key && descending === "" ? "-" : "";
    sorted = key;
    changed({ sort: descending + key });
  }

  function changed(changes) {
    visible = changes.rows ?? PAGE;
    const kept = Object.entries({ rows: "", ...changes }).map(([key, value]) => [inQuery(key), value]);
    keepQuery(Object.fromEntries(kept));
    draw();
  }

  function draw() {
    const found = rows.filter((row) => matches(row, columns, search.value, facets));
    if (sorted !== "") found.sort((a, b) => ORDER.compare(textOf(a[sorted]), textOf(b[sorted])) * (descending ? -1 : 1));
    for (const facet of facets) facet.offer(rows);
    for (const [index, key] of columns.entries()) mark(heads[index], key, rows, key === sorted && descending);
    drawList(body, found.slice(0, visible), (row) => rowOf(row, columns, cells));
    const all = count(rows.length, "row");
    tally.textContent = found.length === rows.length ? all : `${found.length} of ${all}`;
    tools.hidden = name !== "" && rows.length <= FEW && found.length === rows.length;
    more.hidden = found.length <= visible;
    more.textContent = `Show ${Math.min(PAGE, found.length - visible)} more`;
    box.hidden = found.length === 0;
    notice.hidden = found.length > 0;
  }
  const show = (items) => {
    rows = items;
    draw();
  };
  return { element: el("div.data", tools, notice, box, more), show };
}

function facetOf(key, given, changed) {
  const { element, offer, values } = picker(labelOf(key), () => {
    facet.chosen = values() ?? [];
    changed({ [key]: facet.chosen.join() });
  });
  const facet = { key, element, chosen: given.split(",").filter(Boolean) };
  facet.offer = (rows) => {
    const found = Map.groupBy(rows, (row) => textOf(row[key]));
    const names = [...new Set([...found.keys(), ...facet.chosen])].filter(Boolean).sort(ORDER.compare);
    const isTold = names.length > 1 && names.length <= FEW && names.length < rows.length;
    element.hidden = !isTold && facet.chosen.length === 0;
    const draw = (value) => [STATE.test(key) ? status(value) : value, ` ${found.get(value)?.length ?? 0}`];
    offer(names, draw, facet.chosen);
  };
  return facet;
}

function matches(row, columns, typed, facets) {
  const text = columns.map((key) => textOf(row[key]).toLowerCase()).join(" ");
  const lets = ({ key, chosen }) => chosen.length === 0 || chosen.includes(textOf(row[key]));
  const wanted = typed.toLowerCase().split(/\s+/);
  return wanted.every((word) => text.includes(word)) && facets.every(lets);
}

function mark(head, key, rows, descending) {
  head.className = rows.some((row) => typeof row[key] === "number") ? "number" : "";
  head.ariaSort = descending === false ? null : descending === "" ? "ascending" : "descending";
}

function rowOf(row, columns, cells) {
  const all = columns.map((key, index) => {
    const [tag, scope] = index === 0 ? ["th", "row"] : ["td"];
    const kind = typeof row[key] === "number" ? "number" : null;
    return el(tag, { scope, class: kind }, cells[key] ? cells[key](row) : shown(key, row[key]));
  });
  return el("tr", all);
}

function textOf(value) {
  return String(value ?? "");
}

/** A value for people. */
export function shown(name, value) {
  if (textOf(value) === "") return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && !value.some(isNested)) return value.join(", ");
  if (typeof value === "object") return isNested(value) ? el("code", JSON.stringify(value)) : "";
  const [, form = String] = FORMS.find(([names]) => names.test(name)) ?? [];
  return form(value);
}

/** Any value for people. */
export function dataOf(value, title = "Result") {
  if (Array.isArray(value)) {
    const items = value.map((item) => el("li", String(item)));
    return value.some(isNested) ? tableOf(title, value) : el("ul", items);
  }
  const entries = Object.entries(value);
  const plain = entries.filter(([, one]) => !isNested(one));
  const nested = entries.filter(([, one]) => isNested(one));
  return el(
    "div.data",
    facts(plain.map(([name, one]) => [labelOf(name), IDS.test(name) && one ? el("code", one) : shown(name, one)])),
    nested.map(([name, one]) => el("section", el("h3", labelOf(name)), dataOf(one, labelOf(name)))),
  );
}

function isNested(value) {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

/** How far a run is. */
export function progressOf(progress) {
  if (!progress) return null;
  const { phase, done, total, waiting, rollouts } = progress;
  const bar = el("progress", { max: Math.max(total, 1), value: done });
  const waits = waiting.map(({ on, since }) => el("li", "waits for ", el("b", on), ", since ", ago(since)));
  return el("div.data", el("label", `${phase}: ${done} of ${total} `, bar), el("ul.plain", rollouts.map(rolloutOf), waits));
}

function rolloutOf({ job, action, batch, batches, gate, workers, done, failed, hosts }) {
  const text = `: ${action}, batch ${batch} of ${batches}, ${done} of ${workers} workers, ${failed} failed`;
  const dotOf = ({ worker, state }) => {
    const title = `${worker}: ${words(state)}`;
    return el("li", { title, class: `status ${SIGNS[state] ?? state}` }, el("span.unseen", title));
  };
  const strips = [...Map.groupBy(hosts, (one) => `${one.action} ${one.batch}`)].map(([label, own]) =>
    el("ul.plain.strip", { "aria-label": label }, own.map(dotOf)),
  );
  return el("li", el("b", job), text, gate && [", health check ", status(gate)], el("div.controls", strips));
}
