import { address, bucketPath, call, link } from "./api.js";
import { cancelRun } from "./controls.js";
import { tell } from "./dom.js";
import { count, duration, size, status, words } from "./format.js";
import { clearFind, lookIn, openFind, sought, startFind } from "./log-find.js";
import { LogView } from "./log-view.js";
import { AllLines, lineFilter, MatchingLines, RunLog } from "./run-log.js";

const ASK_MS = 3_000;
const TYPING_MS = 300;
const NEWLINE = 10;

const dock = document.getElementById("dock");
const place = (name) => dock.querySelector(`.${name}`);
const [subject, state, elapsed, progress, why] = "subject state elapsed progress why".split(" ").map(place);
const [trouble, problem, download, bytes] = "trouble problem download size".split(" ").map(place);
const [pill, output] = ["pill", "output"].map(place);
const { cancel, find, job, worker, wrap } = document.forms.tools.elements;

/** The run that is shown; all are null without one. */
export let shown = { bucketId: null, runId: null, status: null, kind: null };

let changed = () => {};
let log = null;
let reading = new AbortController();
let run = null;
let readAt = 0;
let where = "";
let filter = "";
let newLines = 0;
let drawing = false;
let cancelled = null;

const view = new LogView(output, { href, onFollow: drawFollow, onProblem: (why) => tell(problem, why) });

/** Starts the place that shows the log of one run; `listener` hears when that run or its state is another. */
export function startActivity(listener) {
  changed = listener;
  startFind({
    ...{ log: () => log, position: () => view.position },
    ...{ onChange: () => showLines(), onGo: (offset) => view.go(offset) },
    onClose() {
      showLines();
      output.focus();
    },
  });
  let typing;
  for (const field of [job, worker])
    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(narrow, TYPING_MS);
    });
  wrap.addEventListener("change", () => output.classList.toggle("unwrapped", !wrap.checked));
  find.addEventListener("click", openFind);
  cancel.addEventListener("click", askToCancel);
  pill.addEventListener("click", () => view.go(Infinity));
  dock.addEventListener("toggle", label);
  addEventListener("hashchange", followAddress);
  setInterval(() => run?.status === "running" && tick(), 1_000);
}

/** Shows a run instead of the one before. */
export function showRun(bucketId, runId) {
  if (log?.runId === runId && log.bucketId === bucketId) return followAddress();
  clearActivity();
  dock.hidden = false;
  reading = new AbortController();
  const { signal } = reading;
  log = new RunLog(bucketId, runId, signal, (message) => tell(trouble, message));
  change();
  read(log).catch((error) => signal.aborted || tell(trouble, error.message));
}

/** Shows the newest run of a bucket, unless one of it is shown or an active one of another. */
export function offerRun(bucketId, runId) {
  if (runId && shown.status !== "running" && shown.bucketId !== bucketId) showRun(bucketId, runId);
}

/** Opens the search in the log; answers false where there is none or it has the keyboard. */
export function findInLog() {
  if (log) unfold();
  return log !== null && openFind();
}

/** Opens the place, where it is folded. */
export function unfold() {
  dock.open = true;
}

/** Shows no run. */
export function clearActivity() {
  reading.abort();
  [log, run, newLines, filter] = [null, null, 0, ""];
  [job.value, worker.value] = ["", ""];
  lookIn({});
  clearFind();
  view.clear();
  tell(trouble, "");
  dock.hidden = true;
  change();
}

async function read(from) {
  const { signal } = from;
  const bucket = call("GET", bucketPath(from.bucketId)).catch(() => null);
  const first = await from.run();
  const { project, name } = (await bucket) ?? {};
  signal.throwIfAborted();
  where = project ? `${project} / ${name}` : from.bucketId;
  from.size = first.log_size_bytes;
  update(first);
  Object.assign(download, { href: from.path("/activity.log"), download: `${first.kind}-${first.id}.log` });
  showLines(addressed() ?? Infinity);
  const asking = setInterval(() => ask(from), ASK_MS);
  signal.addEventListener("abort", () => clearInterval(asking));
  await from.follow(grew);
  clearInterval(asking);
  const ended = await from.run();
  signal.throwIfAborted();
  update(ended);
}

async function ask(from) {
  if (document.hidden) return;
  const before = run;
  const now = await call("GET", from.path(), { signal: from.signal }).catch(() => null);
  if (now?.status === "running" && run === before) update(now);
}

function update(now) {
  [run, readAt] = [now, performance.now()];
  change();
}

function change() {
  const { id, kind = null, status: word = null, error } = run ?? {};
  const isActive = word === "running";
  const ending = isActive && cancelled === id ? " cancelling …" : "";
  subject.textContent = run ? `${kind} in ${where}` : "";
  // Said again only when it is something else: it is read out.
  if (state.textContent !== `${word ?? ""}${ending}`)
    state.replaceChildren(...(run ? [status(word), ending] : []));
  tell(why, error ?? "");
  tell(progress, isActive && run.progress ? progressText(run.progress) : "");
  cancel.hidden = !isActive;
  cancel.disabled = ending !== "";
  const before = JSON.stringify(shown);
  const { bucketId = null, runId = null } = log ?? {};
  shown = { bucketId, runId, status: word, kind };
  tick();
  label();
  if (before !== JSON.stringify(shown)) changed();
}

function tick() {
  const { status: word, duration_ms: ms } = run ?? {};
  const seconds = Math.floor((ms + performance.now() - readAt) / 1000);
  const ended = run ? `after ${duration(ms)}` : "";
  elapsed.textContent = word === "running" ? `for ${duration(seconds * 1000)}` : ended;
}

function progressText({ phase, done, total, waiting }) {
  const how = total > 0 ? `${phase}: ${done} of ${total}` : phase;
  const names = waiting.map(({ on }) => on).join(", ");
  return names === "" ? how : `${how}; waiting for ${names}`;
}

function label() {
  const how = dock.open || run === null ? "" : `: ${words(run.kind)} ${run.status}`;
  dock.firstElementChild.textContent = `Activity${how}`;
}

async function askToCancel() {
  const { id, kind } = run;
  if (!(await cancelRun(log.bucketId, { id, kind: `${kind} in ${where}` }))) return;
  cancelled = id;
  change();
}

function grew(added) {
  if (!view.following) for (const byte of added) if (byte === NEWLINE) newLines++;
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawFollow();
    view.grew();
  });
}

function drawFollow() {
  if (view.following) newLines = 0;
  pill.hidden = newLines === 0;
  pill.textContent = `↓ ${count(newLines, "new line")}`;
  bytes.textContent = log ? size(log.size) : "";
}

function showLines(offset = view.following ? Infinity : (view.pointed ?? view.position)) {
  if (run === null) return;
  const { text, exact, only } = sought();
  view.mark(text === "" ? null : { text, exact });
  const wanted = { ...scope(), text: only ? text : "", exact: only && exact };
  if (filter === JSON.stringify(wanted)) return;
  filter = JSON.stringify(wanted);
  const found = lineFilter(wanted);
  view.show(log, found ? new MatchingLines(log, found) : new AllLines(log), offset);
  drawFollow();
}

function narrow() {
  showLines();
  lookIn(scope());
}

function scope() {
  return { job: job.value.trim(), worker: worker.value.trim() };
}

function href(offset) {
  return link(log.bucketId, "runs", [log.runId], { at: offset });
}

function followAddress() {
  const offset = run && addressed();
  if (offset !== null) view.go(offset);
}

function addressed() {
  const { bucketId, view: name, rest, query } = address();
  const isHere = name === "runs" && rest[0] === log.runId && bucketId === log.bucketId;
  return isHere && /^\d{1,15}$/.test(query.get("at")) ? Number(query.get("at")) : null;
}
