// What opens from a cell of the map: an allocation with its last lines, or the workers of a cell that stands for many.
import { get } from "../../base/api.js";
import { a, button, el, facts } from "../../base/dom.js";
import { number, plain, said, since, words } from "../../base/text.js";
import { badge, icon } from "../state.js";
import { STATES } from "./model.js";
import { placeOf, readEvidence, showReason, tellingLine } from "./reason.js";

const LINES = 4;

/** Reads an allocation and the last lines of what was done there; where the log tells no places, those of its reason. */
export async function readAllocation(page, job, worker) {
  const one = await get(page.path(placeOf(job, worker)));
  const { lines, reason_line: line } = await readEvidence(page, one);
  const [, ...own] = one.reason.split("\n");
  const told = own.map((text) => ({ text }));
  return { ...one, line: one.reason && line, lines: (lines.length > 0 ? lines : told).slice(-LINES) };
}

/** The panel of one allocation. */
export function allocationPanel(page, one, { onClose, controls }) {
  const { job, worker, state, action, since: begun, current_version: now, new_version: target, wave, reason, lines } = one;
  const log = one.run_id && button("Log of this", () => showReason(page, one), { class: "small" });
  const rows = lines.map((own) => {
    const go = () => page.showRun(one.run_id, { line: own.line, job, worker });
    return evidenceLine(own, own.line && own.line === one.line, go);
  });
  const versions = now === target ? target : `${now}, to be ${target}`;
  return [
    panelHead(page, job, [[" on ", el("b", said(worker))], badge(state)], { controls: [controls, log], onClose }),
    el(
      "div.pad",
      facts([
        ["Last step", action && [words(action), " ", begun && since(begun)]],
        ["Version", said(versions)],
        ["Wave", wave],
        ["Changed by hand", one.drift_files?.length > 0 && said(one.drift_files.map(({ path }) => path).join(", "))],
      ]),
      reason && el("code.reason", { tabindex: 0 }, said(tellingLine(reason))),
      lines.length > 0 && el("div.evidence", el("ol", { tabindex: 0, "aria-label": "Last lines" }, rows)),
    ),
  ];
}

/** A line that a worker wrote, with its number, where the log has one; `go` shows it there. */
export function evidenceLine({ line, text, stream }, isReason, go) {
  const kind = isReason ? "reason-line" : stream === "stderr" && "warned";
  const place = line ? button(number(line), go, { class: "plain", "aria-label": `Line ${line} in the log` }) : el("span");
  return el("li", { class: kind, key: line && String(line) }, place, el("span", said(text)));
}

/** The panel of a cell that stands for many workers: `places` are `{ worker, label, state }`, without a state where the job is not. */
export function placesPanel(page, { job, name }, places, { onOpen, onClose, controls }) {
  const groups = Map.groupBy(places, ({ state }) => state);
  const told = Object.values(STATES).filter((state) => groups.has(state));
  const title = ` on ${plain(name)}, ${number(places.length)} workers`;
  const badges = told.map((state) => badge(state, `${number(groups.get(state).length)} ${state}`));
  const placeOf = ({ worker, label, state }) => {
    const name = `${plain(worker)}, ${state}`;
    const content = [el("span.cell", { class: state }), plain(label), el("span.unseen", ` ${name}`)];
    return button(content, () => onOpen(worker), { title: name, key: worker, class: "plain place" });
  };
  const here = places.filter(({ state }) => state);
  return [panelHead(page, job, [title, badges], { controls, onClose }), el("div.pad.places", here.map(placeOf))];
}

function panelHead(page, job, [title, ...badges], { controls, onClose }) {
  const close = button(icon("close"), onClose, { class: "small quiet", "aria-label": "Close" });
  const name = el("h3", a(page.link("jobs", [job]), el("b", said(job))), title);
  return el("header.panel-head", el("div.row", name, badges), el("div.controls", controls, close));
}
