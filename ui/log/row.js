// A line of the log, or a fold of lines, as an element.
import { button, el } from "../base/dom.js";
import { count, number, plain, said, styled } from "../base/text.js";
import { commonPrefix, stemOf } from "../parts/map/model.js";

const MINUTE_MS = 60_000;
const MOST_NAMES_SEEN = 1_000;

/** The jobs and workers of a log, and how many letters all names of workers share: those need not be said on each line. */
export function seenNames() {
  const seen = { job: new Set(), worker: new Set(), cut: 0 };
  let common = "";
  const add = ({ job, worker }) => {
    if (job && seen.job.size < MOST_NAMES_SEEN) seen.job.add(job);
    if (!worker || seen.worker.has(worker) || seen.worker.size > MOST_NAMES_SEEN) return;
    common = seen.worker.size > 0 ? commonPrefix([common, worker]) : worker;
    seen.worker.add(worker);
    seen.cut = seen.worker.size > 1 ? stemOf(common).length : 0;
  };
  return { seen, add };
}

/**
 * @param {import("./fold.js").Row} row
 * @param {object} look
 * @param {boolean} look.isChosen
 * @param {(line: number) => string} look.href
 * @param {(at: string | null) => string} look.time empty where times are not shown
 * @param {number} look.cut how many letters of a worker's name are left out
 * @param {boolean} look.escapes sequences for terminals are shown as what they are
 * @param {{ q?: string, case?: boolean }} look.find
 * @param {(line: number) => void} look.open
 * @param {(row: import("./fold.js").Row) => Promise<string>} look.whole
 */
export function rowOf(row, look) {
  if (row.fold) return foldRow(row, look);
  const { line, at, job, worker, stream, error, text, length } = row;
  const kinds = [error && "error", look.isChosen && "chosen", stream === "stderr" && stream];
  const address = { href: look.href(line), "data-line": line, tabindex: -1 };
  const isCut = text.endsWith("…") && length > text.length;
  return el(
    "div.line",
    { class: kinds.filter(Boolean).join(" ") },
    el("a.number", { ...address, "aria-label": `Line ${number(line)}${error ? ", error" : ""}` }, number(line)),
    el("span.when", look.time(at)),
    el("span.place", { title: plain(placeText(job, worker)) }, said(placeText(job, worker?.slice(look.cut)))),
    el("span.text", lineContent(text, look)),
    isCut && showAll(row, look),
  );
}

function placeText(job, worker) {
  return [job, worker].filter(Boolean).join("@");
}

function foldRow(row, { open, cut }) {
  const { text, job, workers, worker } = row;
  const isMany = workers.size > 1;
  const place = isMany ? count(workers.size, "worker") : placeText(job, worker?.slice(cut));
  const label = { class: "plain number", "aria-label": `Open ${count(row.count, "line")}` };
  return el(
    "div.line.folded",
    button(`▸ ${number(row.count)}`, () => open(row.line), label),
    el("span.when"),
    el("span.place", { title: plain([...workers].slice(0, 50).join(", ")) }, said(place)),
    el("span.text", said(text)),
  );
}

/** A line that is longer than what the server gives at once is read whole when somebody wants that. */
function showAll(row, look) {
  const show = async ({ currentTarget: pressed }) => {
    pressed.setAttribute("aria-busy", "true");
    const text = await look.whole(row);
    const whole = el("span.text.all", lineContent(text, look));
    pressed.previousElementSibling.replaceWith(whole);
    pressed.remove();
  };
  return button(`${number(row.length)} bytes, show all`, show, { class: "small" });
}

function lineContent(text, { escapes, find }) {
  if (escapes) return said(text);
  return styled(text).map((piece) => {
    const content = marked(piece.text, find);
    return piece.classes === "" ? content : el("span", { class: piece.classes }, content);
  });
}

function marked(text, find) {
  if (!find.q) return said(text);
  const parts = text.split(new RegExp(`(${RegExp.escape(find.q)})`, find.case ? "g" : "gi"));
  return parts.map((part, index) => (index % 2 === 1 ? el("mark", said(part)) : said(part)));
}

/** The time of day of a line: here, in UTC, or since the run began. @param {string} how @param {string | null} began */
export function timeOf(at, how, began) {
  if (how === "") return "";
  if (!at) return "-";
  const written = Date.parse(at);
  const zone = new Date(written).getTimezoneOffset() * MINUTE_MS;
  const from = { UTC: 0, local: zone, run: Date.parse(began) }[how];
  return new Date(Math.max(0, written - from)).toISOString().slice(11, -1);
}

/** Makes elements the children of a list; those that stay are not touched. */
export function arrange(list, elements) {
  const wanted = new Set(elements);
  for (const old of [...list.children]) if (!wanted.has(old)) old.remove();
  for (const [index, element] of elements.entries())
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
}
