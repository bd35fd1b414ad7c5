// What a worker said before it failed: its last lines with their numbers in the log, and the line that tells the reason.
import { queryOf } from "../base/api.js";
import { el } from "../base/dom.js";
import { joined, number, said } from "../base/text.js";
import { copying } from "../parts/dialog.js";
import { evidenceLine } from "../parts/map/panel.js";
import { tellingLine } from "../parts/map/reason.js";
import { icon } from "../parts/state.js";

/**
 * The lines of a place, or what the result itself has of them until they are there or where the log tells no places.
 * @param {import("../views/run.js").RunPage} view
 * @param {{ job: string | null, worker: string | null, error?: string | null, evidence?: any }} of
 */
export function evidenceOf(view, { job, worker, error, evidence }) {
  const found = view.read(`/runs/${view.run.id}/evidence?${queryOf({ job, worker })}`);
  const isFound = found?.lines?.length > 0;
  // The first line of an error says what failed; the others are the worker's own.
  const [, ...own] = (error ?? "").split("\n");
  const [telling, lines] = [tellingLine(error), isFound ? found.lines : own.map((text) => ({ text }))];
  const isReason = isFound ? ({ line }) => line === found.reason_line && error !== "cancelled" : ({ text }) => text === telling;
  const many = lines.length === 1 ? "last line" : `last ${lines.length} lines`;
  const about = joined(many, isFound && found.left_out > 0 && `${number(found.left_out)} by make left out`);
  const text = () => lines.map((one) => one.text).join("\n");
  const rows = lines.map((one) => evidenceLine(one, isReason(one), () => view.page.showRun(view.run.id, { line: one.line })));
  const copy = copying([icon("copy"), "Copy"], text, { class: "small quiet" });
  const key = `${job}@${worker}`;
  const list = el("ol", { tabindex: 0, "aria-label": `Last lines of ${key}` }, rows);
  const written = lines.length > 0 && el("div.evidence", { key }, el("p", el("span.meta", about), copy), list);
  return [written, evidence && foundThere(evidence)];
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
