// What a worker said before it failed: its last lines with their numbers in the log, and the line that tells the reason.
import { get, queryOf } from "../base/api.js";
import { button, el } from "../base/dom.js";
import { number, said } from "../base/text.js";
import { copying } from "../parts/dialog.js";
import { tellingLine } from "../parts/map/reason.js";
import { icon } from "../parts/state.js";

/**
 * The lines of a place, or what the result itself has of them until they are there or where the log tells no places.
 * @param {import("../views/run.js").RunPage} view
 * @param {{ job: string | null, worker: string | null, error?: string | null, evidence?: any }} of
 */
export function evidenceOf(view, of) {
  const { job, worker, error, evidence } = of;
  const key = `${job}@${worker}`;
  if (!view.evidence.has(key)) read(view, key, { job, worker });
  const found = view.evidence.get(key);
  const lines = found?.lines?.length > 0 ? found.lines : ownLines(error);
  const telling = found?.lines?.length > 0 ? undefined : tellingLine(error);
  return [lines.length > 0 && block(view, lines, { ...found, telling }, key), evidence && foundThere(evidence)];
}

async function read(view, key, place) {
  view.evidence.set(key, undefined);
  const path = view.page.path(`/runs/${view.run.id}/evidence?${queryOf(place)}`);
  const found = await get(path, { signal: view.page.signal }).catch(() => null);
  view.evidence.set(key, found);
  if (found) view.draw();
}

/** The first line of an error says what failed; the others are the worker's own. */
function ownLines(error) {
  const [, ...lines] = (error ?? "").split("\n");
  return lines.map((text) => ({ text }));
}

function block(view, lines, { reason_line: reason, left_out: left = 0, telling }, key) {
  const { page, run } = view;
  const text = () => lines.map((one) => one.text).join("\n");
  const about = [`last ${lines.length === 1 ? "line" : `${lines.length} lines`}`, left > 0 && `${number(left)} by make left out`];
  const rows = lines.map(({ line, text: words, stream }) => {
    const go = () => page.showRun(run.id, { line });
    const place = line ? button(number(line), go, { class: "plain", "aria-label": `Line ${line} in the log` }) : el("span");
    const isReason = line === undefined ? words === telling : line === reason;
    const kind = isReason ? "reason-line" : stream === "stderr" && "warned";
    return el("li", { class: kind, key: line && String(line) }, place, el("span", said(words)));
  });
  return el(
    "div.evidence",
    { key },
    el("p", el("span.meta", about.filter(Boolean).join(", ")), copying([icon("copy"), "Copy"], text, { class: "small quiet" })),
    el("ol", { tabindex: 0, "aria-label": `Last lines of ${key}` }, rows),
  );
}

/** What ops looked up itself where a health check failed: the ends of logs, and `make status`. */
function foundThere({ logs, status, errors }) {
  const texts = [
    ...logs.map(({ file, lines }) => [`end of logs/${file}`, lines]),
    ...(status ? [[`make status: exit code ${status.exit_code}`, status.lines]] : []),
    ...(errors.length > 0 ? [["not found out", errors]] : []),
  ];
  return texts.map(([title, lines]) => {
    const text = lines.length > 0 && el("pre", { tabindex: 0 }, said(lines.join("\n")));
    return el("div.evidence", el("p", el("span.meta", said(title))), text);
  });
}
