// Activity: the log of one run at a time, as a line in the status bar, as the panel that opens from it, in the whole
// window, or in the page of its run (control-plane.md, UI).
import { address, bucketPath, get, pageAt } from "../base/api.js";
import { button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { count, nameOf, said } from "../base/text.js";
import { LogPane } from "../log/pane.js";
import { LogSource } from "../log/source.js";
import { cancelButton } from "../parts/order.js";
import { icon, mark } from "../parts/state.js";

/** The share of the window that the panel takes, in percent. */
const SHARE = { usual: 45, least: 15, most: 85, step: 5 };
const WIDE = matchMedia("(width >= 1200px)");

const [panel, bar, viewElement] = ["activity", "status", "view"].map((id) => document.getElementById(id));

const NOTHING = {
  /** @type {LogSource | null} */
  source: null,
  run: /** @type {any} */ (null),
  /** The first error of a run that has not gone well. @type {import("../log/source.js").Line | undefined} */
  error: undefined,
  isOpen: false,
  isWhole: false,
  /** Whether a person asked for lines of this run: while they are open, a newer run does not take the place. */
  isChosen: false,
  trouble: "",
};

const showing = {
  ...NOTHING,
  /** The place in a run's page. @type {HTMLElement | null} */
  host: null,
  share: preference("log", {}).share ?? SHARE.usual,
  /** The lines that the address has asked for. */
  asked: "",
  onChange: () => {},
};

const pane = new LogPane({ onWhole: () => activity.fill(), onClose: () => activity.toggle() });
const edge = separator();

/** Activity: the one place for the log of a run, below the views or in them. */
export const activity = {
  /** Starts Activity; `onChange` hears when a run ends. */
  start({ onChange }) {
    showing.onChange = onChange;
    addEventListener("hashchange", followAddress);
    WIDE.addEventListener("change", place);
    // A page that is left takes its place for the log with it.
    const leave = () => showing.host?.isConnected === false && place();
    new MutationObserver(leave).observe(viewElement, { childList: true, subtree: true });
    addEventListener("keydown", closeByKey);
    panel.append(edge);
    draw();
  },

  /** The log of a run's page is read while the page is read. */
  arrive: followAddress,

  /** The newest run of the bucket is shown by itself. */
  offer(bucketId, runId) {
    if (followAddress()) return;
    const { source, isChosen, isOpen } = showing;
    if (source?.bucketId === bucketId && (source.runId === runId || (isChosen && isOpen))) return;
    showing.isChosen = false;
    showRun(bucketId, runId, {});
  },

  /** Shows a run, and lines of it: `line` is a number or `[first, last]`. */
  show(bucketId, runId, { line, job, worker } = /** @type {any} */ ({})) {
    const at = line === undefined || line === null ? undefined : [line].flat();
    // A page that shows its run, and a start, are no choice: the next newer run may take the place.
    showing.isChosen = Boolean(at || job || worker);
    const isNew = showRun(bucketId, runId, { line: at, job, worker });
    if (!isNew) pane.narrow({ line: at, job, worker });
    if (at || job || worker) setOpen(true);
  },

  /** Shows no run. */
  clear() {
    // A log in the whole window gives the page back.
    if (showing.isWhole) activity.fill();
    showing.source?.close();
    Object.assign(showing, NOTHING);
    pane.clear();
    place();
  },

  /** Opens the search in the log; false where there is none, and where the search has the keyboard. */
  find() {
    const { field } = pane.find;
    const focus = () => {
      field.focus();
      field.select();
    };
    return document.activeElement !== field && inLog(focus);
  },

  /** Opens or closes the log. */
  toggle() {
    if (!showing.source) return false;
    if (showing.isWhole) return activity.fill();
    if (!isHosted()) {
      setOpen(!showing.isOpen);
      keepLooks({ open: showing.isOpen });
    }
    if (showing.isOpen || isHosted()) pane.view.element.focus();
    else bar.querySelector("button")?.focus();
    return true;
  },

  /** Fills the window with the log, or not any more. */
  fill() {
    if (!showing.source) return false;
    showing.isWhole = !showing.isWhole;
    for (const one of document.body.children)
      if (one !== panel && one.id !== "toasts") one.toggleAttribute("inert", showing.isWhole);
    place();
    pane.view.element.focus();
    return true;
  },

  /** Opens the log where it is. */
  open: () => setOpen(true),

  /** The next error, or the one before. */
  error: (by) => inLog(() => pane.error(by)),

  /** Opens the log at the next match, or at the one before. */
  match: (by) => pane.find.state.q !== "" && inLog(() => pane.find.step(by)),

  /** Goes to a line of the run that is shown. */
  goTo: (line) => inLog(({ total }) => pane.goTo([Math.max(1, Math.min(line, total))])),

  /** Asks for the number of a line. */
  askForLine: () => inLog(() => pane.askForLine()),

  /** Gives the log a place in the page of its run, on wide screens. */
  mount(host) {
    showing.host = host;
    place();
  },
};

/** Opens the log and does something in it; false where none is shown. @param {(source: LogSource) => void} act */
function inLog(act) {
  if (!showing.source) return false;
  setOpen(true);
  act(showing.source);
  return true;
}

/** Shows a run unless it is shown; answers whether it was not. */
function showRun(bucketId, runId, where) {
  if (showing.source?.runId === runId && showing.source.bucketId === bucketId) return false;
  const { isChosen, isWhole } = showing;
  activity.clear();
  const source = new LogSource(bucketId, runId);
  Object.assign(showing, { source, isChosen });
  if (isWhole) activity.fill();
  readRun(source, where).catch((error) => {
    if (!source.signal.aborted) pane.tell(error.message);
  });
  draw();
  return true;
}

/** @param {LogSource} source */
async function readRun(source, where) {
  const { signal } = source;
  const bucket = get(bucketPath(source.bucketId), { signal }).catch(() => null);
  const [run] = await Promise.all([get(source.path(), { signal }), source.open()]);
  if (signal.aborted) return;
  showing.run = run;
  if (preference("log", {}).open) showing.isOpen = true;
  place();
  pane.open(source, run, where);
  const { project, name } = (await bucket) ?? {};
  pane.where = project ? `${project} / ${name}` : "";
  findError(source);
  if (!source.done) await source.follow(grew, tellTrouble);
  if (signal.aborted || run.status !== "running") return;
  showing.run = await get(source.path(), { signal });
  pane.update(showing.run);
  await findError(source);
  showing.onChange();
}

function grew(added) {
  showing.error ??= added.find(({ error }) => error);
  pane.grew();
  draw();
}

function tellTrouble(trouble) {
  showing.trouble = trouble;
  pane.tell(trouble);
  draw();
}

/** The first error is the line that matters, unless all went well. */
async function findError(source) {
  const { signal } = source;
  // Another run may have taken its place while it was read.
  if (signal.aborted) return;
  const isBad = showing.run.status !== "succeeded";
  const found = isBad ? await source.seek({ errors: true }, 0, 1).catch(() => undefined) : showing.error;
  if (signal.aborted) return;
  showing.error = found;
  draw();
}

/** Shows the run and the lines of the address; answers whether the address is a run's. */
function followAddress() {
  const { bucketId, view, rest, query } = address();
  place();
  if (view !== "runs" || !rest[0] || !bucketId) return false;
  const [first, last = first] = (query.get("line") ?? "").split("-").map(Number);
  const line = first > 0 && last >= first ? [first, last] : undefined;
  const given = { line, job: query.get("job") ?? undefined, worker: query.get("worker") ?? undefined };
  const asked = JSON.stringify(given);
  const isNew = showRun(bucketId, rest[0], given);
  if (!isNew && showing.asked !== asked) pane.narrow(given);
  if (showing.asked !== asked && asked !== "{}") setOpen(true);
  showing.asked = asked;
  return true;
}

function setOpen(isOpen) {
  showing.isOpen = isOpen;
  place();
}

function isHosted() {
  return showing.host?.isConnected && WIDE.matches && !showing.isWhole;
}

/** Puts the log where it belongs now. */
function place() {
  const { source, host, isOpen, isWhole, share } = showing;
  if (!host?.isConnected) showing.host = null;
  const hosted = isHosted();
  const home = hosted ? host : panel;
  if (pane.element.parentElement !== home) pane.view.moved(() => home.append(pane.element));
  panel.hidden = !source || hosted || !(isWhole || (isOpen && address().bucketId));
  panel.classList.toggle("whole", isWhole);
  panel.style.height = isWhole ? "" : `${share}dvh`;
  edge.hidden = isWhole;
  edge.setAttribute("aria-valuenow", String(Math.round(share)));
  pane.element.classList.toggle("hosted", Boolean(hosted));
  pane.isWhole = isWhole;
  pane.draw();
  draw();
}

function draw() {
  patch(bar, statusBar());
}

/** The status bar. */
function statusBar() {
  const { source, run, error, isOpen, trouble } = showing;
  if (!source || !run) return el("span.meta", { key: "none" }, source ? "" : "Nothing has run yet.");
  const matters = error ?? source.newest;
  const line = trouble || (matters ? said(matters.text) : "Nothing was written yet.");
  const what = [mark(run.status, { label: run.status }), el("b", nameOf(run)), el("span.code", `…${run.id.slice(-8)}`)];
  if (isHosted()) return el("span.what", { key: "what" }, what, "is shown on this page");
  const about = { class: "bar-line", key: "line", "aria-expanded": String(isOpen), "aria-controls": "activity" };
  const parts = [
    el("span.what", what),
    el("span.said.code", { class: (error || trouble) && "failed" }, line),
    el("span.lines", count(source.total, "line")),
    el("span.open", isOpen ? "Close" : "Log", el("kbd", "L")),
    icon("wide"),
  ];
  const cancel = run.status === "running" && cancelButton(pageAt(source), run, { class: "small", key: "cancel" });
  return [button(parts, () => activity.toggle(), about), cancel];
}

/** The upper edge of the panel: dragged, or moved by keys. */
function separator() {
  const { least, most, step } = SHARE;
  const to = (share) => {
    showing.share = Math.min(most, Math.max(least, share));
    place();
  };
  const label = { tabindex: 0, role: "separator", "aria-label": "Height of the log", "aria-orientation": "horizontal" };
  const element = el("div.log-edge", { ...label, "aria-valuemin": least, "aria-valuemax": most, "aria-controls": "activity" });
  element.onpointerdown = (event) => element.setPointerCapture(event.pointerId);
  element.onpointermove = (event) => {
    if (element.hasPointerCapture(event.pointerId)) to(100 - (100 * event.clientY) / innerHeight);
  };
  element.onlostpointercapture = () => keepLooks({ share: showing.share });
  element.onkeydown = ({ key }) => {
    const share = { ArrowUp: showing.share + step, ArrowDown: showing.share - step, Home: most, End: least }[key];
    if (share === undefined) return;
    to(share);
    keepLooks({ share: showing.share });
  };
  return element;
}

function closeByKey(event) {
  const isMeant = event.key === "Escape" && !event.defaultPrevented && (showing.isWhole || panel.contains(event.target));
  if (!isMeant || document.querySelector("dialog[open], [popover]:popover-open")) return;
  event.preventDefault();
  activity.toggle();
}

function keepLooks(changes) {
  prefer("log", { ...preference("log", {}), ...changes });
}
