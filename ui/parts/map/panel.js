// What opens from a cell of the map: an allocation with its last lines, or the workers of a cell that stands for many.
import { bucketPath, get, queryOf, unless } from "../../base/api.js";
import { a, button, el, facts } from "../../base/dom.js";
import { number, since, words } from "../../base/format.js";
import { plain, said } from "../../base/text.js";
import { badge, icon } from "../state.js";
import { STATES, tally } from "./model.js";

const LINES = 4;

/** Reads an allocation and the last lines of what was done there. */
export async function readAllocation({ bucketId }, job, worker) {
  const one = await get(bucketPath(bucketId, `/map/${encodeURIComponent(job)}/${encodeURIComponent(worker)}`));
  if (!one.run_id) return { ...one, lines: [] };
  const evidence = await readEvidence(bucketId, { run_id: one.run_id, job, worker });
  return {
    ...one,
    line: one.line ?? evidence.reason_line,
    lines: evidence.lines.slice(-LINES),
    reasonLine: evidence.reason_line,
  };
}

/** The last lines of a place in a run, and which of them tells the reason. */
export async function readEvidence(bucketId, { run_id: runId, job, worker }) {
  const path = bucketPath(bucketId, `/runs/${runId}/evidence?${queryOf({ job, worker })}`);
  return await unless(get(path), { lines: [], reason_line: null });
}

/** The panel of one allocation. */
export function allocationPanel(page, one, { onLog, onClose, controls }) {
  const { job, worker, state, action, since: begun, current_version: now, new_version: target, wave, reason, lines } = one;
  const log = one.run_id && button("Log of this", () => onLog(one), { class: "small" });
  const versions = now === target ? target : `${now || "none"}, to be ${target}`;
  const head = [el("h3", a(page.link("jobs", [job]), el("b", said(job))), " on ", el("b", said(worker))), badge(state)];
  return [
    headOf(head, [controls, log], onClose),
    el(
      "div.pad",
      facts([
        ["Last step", action && [words(action), " ", begun && since(begun)]],
        ["Version", said(versions)],
        ["Wave", wave],
        ["Changed by hand", one.drift_files?.length > 0 && said(one.drift_files.join(", "))],
      ]),
      reason && el("code.reason", { tabindex: 0 }, said(reason)),
      lines.length > 0 &&
        el(
          "pre.scroll",
          { tabindex: 0 },
          lines.map((line) => lineOf(line, one)),
        ),
    ),
  ];
}

function lineOf({ line, text, stream }, { reasonLine }) {
  const name = line === reasonLine ? "reason-line" : stream === "stderr" && "stderr";
  return el("span.line", { class: name, key: line }, el("span.number", number(line)), " ", said(text), "\n");
}

/** The panel of a cell that stands for many workers: `places` are `{ worker, label, letter }`. */
export function placesPanel(page, { job, name }, places, { onOpen, onClose, controls }) {
  const counts = tally(places.map(({ letter }) => letter).join(""));
  const told = Object.keys(STATES).filter((letter) => counts[letter] > 0);
  const head = [
    el("h3", a(page.link("jobs", [job]), el("b", said(job))), ` on ${plain(name)}, ${number(places.length)} workers`),
    told.map((letter) => badge(STATES[letter], `${number(counts[letter])} ${STATES[letter]}`)),
  ];
  const placeOf = ({ worker, label, letter }) => {
    const word = STATES[letter.toLowerCase()];
    const name = `${plain(worker)}, ${word}`;
    const content = [el("span.cell", { class: word }), plain(label), el("span.unseen", ` ${name}`)];
    return button(content, () => onOpen(worker), { title: name, key: worker, class: "plain place" });
  };
  return [headOf(head, controls, onClose), el("div.pad.places", places.filter(({ letter }) => letter !== " ").map(placeOf))];
}

function headOf(head, controls, onClose) {
  const close = button(icon("close"), onClose, { class: "small quiet", "aria-label": "Close" });
  return el("header.panel-head", el("div.row", head), el("div.controls", controls, close));
}
