import { address, bucketPath, call, keepQuery, link, queryOf } from "./api.js";
import { cancelRun, copying } from "./controls.js";
import { tell } from "./dom.js";
import { cancelling, count, duration, size, status } from "./format.js";
import { clearFind, lookIn, openFind, sought, startFind } from "./log-find.js";
import * as view from "./log-view.js";
import { prefer, preference } from "./preferences.js";
import { allLines, foldedLines, matchingLines, RunLog } from "./run-log.js";

const ASK_MS = 2_000;
const TYPING_MS = 300;
const NEWLINE = 10;
const MINUTE_MS = 60_000;

const dock = document.getElementById("activity");
const [subject, state, elapsed, progress, why, trouble, problem, download, bytes, pill, output] =
  "subject state elapsed progress why trouble problem download size pill output"
    .split(" ")
    .map((name) => dock.querySelector(`.${name}`));
const { cancel, find, start, follow, job, worker, fold, times } = document.forms.tools.elements;
const toggles = dock.querySelectorAll(".kept");
const copy = copying("Copy lines", pointedText, { hidden: true });

/** The run that is shown. */
export let shown = { bucketId: null, runId: null, status: null, kind: null };

let changed = () => {};
let log = null;
let reading = new AbortController();
let run = null;
let where = "";
let shape = "";
let newLines = 0;
let drawing = false;

view.startView(output, { href, timeOf, onFollow: drawFollow, onProblem: (why) => tell(problem, why) });

/** Starts the log; `listener` hears of runs and states. */
export function startActivity(listener) {
  changed = listener;
  startFind({ log: () => log, changed: () => showLines(), leave: () => output.focus() });
  let typing;
  for (const field of [job, worker])
    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(narrow, TYPING_MS);
    });
  startToggles();
  find.addEventListener("click", openFind);
  cancel.addEventListener("click", askToCancel);
  follow.addEventListener("change", () => (follow.checked ? view.go(Infinity) : view.follow(false)));
  start.addEventListener("click", () => view.go(0));
  pill.addEventListener("click", () => view.go(Infinity));
  download.before(copy);
  addEventListener("hashchange", followAddress);
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

/** Shows a run, unless one of its bucket or an active one is. */
export function offerRun(bucketId, runId) {
  if (runId && shown.status !== "running" && shown.bucketId !== bucketId) showRun(bucketId, runId);
}

/** Opens the search in the log; false where it cannot. */
export function findInLog() {
  if (log) unfold();
  return log !== null && openFind();
}

/** Unfolds the log. */
export function unfold() {
  dock.open = true;
}

/** Leads to the log. */
export function showLog() {
  unfold();
  output.focus();
}

/** Shows no run. */
export function clearActivity() {
  reading.abort();
  [log, run, newLines, shape] = [null, null, 0, ""];
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
  showLines(Infinity);
  followAddress();
  const asking = setInterval(() => ask(from), ASK_MS);
  await from.follow(grew).finally(() => clearInterval(asking));
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
  run = now;
  change();
}

function change() {
  const { kind = null, status: word = null, error, duration_ms: ms } = run ?? {};
  const isActive = word === "running";
  const ending = run ? cancelling(run) : "";
  subject.textContent = run ? `${kind} in ${where}` : "";
  elapsed.textContent = run ? `${isActive ? "for" : "after"} ${duration(ms)}` : "";
  // Only what is another is read out.
  if (state.textContent !== (word ?? "")) state.replaceChildren(run ? status(word) : "");
  tell(why, error ?? "");
  tell(progress, ending || (isActive && run.progress ? progressText(run.progress) : ""));
  cancel.hidden = !isActive;
  cancel.disabled = ending !== "";
  const before = JSON.stringify(shown);
  const { bucketId = null, runId = null } = log ?? {};
  shown = { bucketId, runId, status: word, kind };
  if (before !== JSON.stringify(shown)) changed();
}

function progressText({ phase, done, total, waiting }) {
  const how = total > 0 ? `${phase}: ${done} of ${total}` : phase;
  const names = waiting.map(({ on }) => on).join(", ");
  return names === "" ? how : `${how}; waiting for ${names}`;
}

async function askToCancel() {
  const { id, kind } = run;
  if (await cancelRun(log.bucketId, { id, kind: `${kind} in ${where}` })) ask(log);
}

function grew(added) {
  newLines += added.filter((byte) => byte === NEWLINE).length;
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawFollow();
    view.grew().then(readTimes);
  });
}

function drawFollow() {
  if (view.following) newLines = 0;
  follow.checked = view.following;
  copy.hidden = view.pointed.length === 0;
  pill.hidden = newLines === 0;
  pill.textContent = `↓ ${count(newLines, "new line")}`;
  bytes.textContent = log ? size(log.size) : "";
}

function showLines(offset = view.following ? Infinity : (view.pointed[0] ?? view.position())) {
  if (run === null) return;
  const { query, isAlone } = sought();
  const wanted = { ...scope(), ...(isAlone && query) };
  const asked = queryOf(wanted);
  view.mark(query);
  download.href = log.path(`/logs/text?${queryOf({ ...wanted, times: times.value !== "" })}`);
  if (shape === `${asked} ${fold.checked}`) return;
  shape = `${asked} ${fold.checked}`;
  const lines = asked.size > 0 ? matchingLines(log, wanted) : allLines(log);
  view.show(log, fold.checked ? foldedLines(lines, view.isOpen) : lines, offset);
  drawFollow();
}

function narrow() {
  if (isAddressed()) keepQuery(scope());
  showLines();
  lookIn(scope());
}

function scope() {
  return { job: job.value.trim(), worker: worker.value.trim() };
}

function href(first, last = first) {
  const at = first === last ? first : `${first}-${last}`;
  return link(log.bucketId, "runs", [log.runId], { ...scope(), at });
}

function isAddressed() {
  const { bucketId, view: name, rest } = address();
  return name === "runs" && rest[0] === log.runId && bucketId === log.bucketId;
}

function followAddress() {
  if (!run || !isAddressed()) return;
  const { query } = address();
  if (query.has("job") || query.has("worker")) {
    for (const field of [job, worker]) field.value = query.get(field.name) ?? "";
    unfold();
    narrow();
  }
  const [first, last = first] = query.get("at")?.split("-").map(Number) ?? [];
  if (first >= 0) view.go(first, last).then(drawFollow);
}

async function pointedText() {
  const [first, last] = view.pointed;
  const { lines } = await allLines(log).after(last, 1);
  return new TextDecoder().decode(await log.read(first, lines[0].end));
}

function startToggles() {
  const kept = preference("log", {});
  for (const one of toggles) {
    const key = one === times ? "value" : "checked";
    one[key] = kept[one.name] ?? one[key];
    one.addEventListener("change", () => {
      prefer("log", { ...preference("log", {}), [one.name]: one[key] });
      showLines();
      readTimes();
    });
  }
}

async function readTimes() {
  const from = log;
  if (!from || times.value === "") return;
  await from.readTimes().catch((error) => from.signal.aborted || tell(problem, error.message));
  view.draw();
}

function timeOf(line) {
  if (times.value === "") return null;
  line.written ??= log.timeAt(line.start);
  if (line.written === undefined) return "-";
  const zone = new Date(line.written).getTimezoneOffset() * MINUTE_MS;
  const from = { UTC: 0, local: zone, run: Date.parse(run.started_at ?? run.created_at) }[times.value];
  return new Date(Math.max(0, line.written - from)).toISOString().slice(11, -1);
}
