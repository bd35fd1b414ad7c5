import { clearActivity, offerRun, shown, showRun, startActivity, unfold } from "./activity.js";
import { address, all, bucketPath, call, pause, queryOf, request, unless } from "./api.js";
import { blockStarts, clearQueue, onStarted } from "./controls.js";
import { closeDialogs, el } from "./dom.js";
import { tick } from "./format.js";
import { startKeys } from "./keys.js";
import { drawSubject, viewAt } from "./routes.js";
import { startSession } from "./sign-in.js";

const TICK_MS = 5_000;
const WAIT_S = 30;
const POLL_MS = 10_000;
const PROGRESS_MS = 2_000;
const RETRY_MS = 2_000;
const STALE_S = 35;

const main = document.getElementById("view");
const badge = document.getElementById("live");

let view = null;
let place = address();
let bucket = null;
let buckets = [];
let following = null;

startActivity(() => {
  showBlocked();
  refresh();
});
startKeys();
onStarted((bucketId, runId) => {
  showRun(bucketId, runId);
  unfold();
  refresh();
});
addEventListener("hashchange", () => following && open(true));
document.getElementById("skip").addEventListener("click", () => main.focus());
document.getElementById("reference").addEventListener("click", openReference);
document.addEventListener("visibilitychange", () => refresh());
setInterval(tick, TICK_MS);
setInterval(() => bucket?.active_run && /deployments|runs/.test(place.view) && refresh(), PROGRESS_MS);
startSession({ onSignIn, onSignOut });

function onSignIn() {
  following = new AbortController();
  followEvents(following.signal);
  open(false);
}

function onSignOut() {
  following?.abort();
  [following, view, bucket, buckets] = [null, null, null, []];
  badge.textContent = "";
  clearActivity();
  clearQueue();
  closeDialogs();
  drawSubject({}, null, []);
  main.replaceChildren(el("h1", "ops"), el("p", "Sign in with the API token."));
  document.title = "ops";
}

async function openReference(event) {
  event.preventDefault();
  await call("GET", "/api/auth/session").catch(() => {});
  location.assign("/docs/");
}

async function followEvents(signal) {
  let heard = Date.now();
  const clock = setInterval(refresh, POLL_MS);
  signal.addEventListener("abort", () => clearInterval(clock));
  for (let after = ""; !signal.aborted; ) {
    try {
      const query = queryOf({ timeout: WAIT_S, after });
      const { items, next, reset } = await request("GET", `/api/events?${query}`, { signal });
      [heard, after] = [Date.now(), next];
      tellLive("live");
      if (items.length > 0 || reset) await refresh();
    } catch {
      if (signal.aborted) return;
      const seconds = Math.round((Date.now() - heard) / 1000);
      tellLive(seconds > STALE_S ? `stale since ${seconds} s` : "reconnecting");
      await pause(RETRY_MS, signal);
    }
  }
}

function tellLive(text) {
  if (badge.textContent === text) return;
  badge.textContent = text;
  badge.className = `status ${text}`;
}

async function open(moved) {
  const before = place;
  place = address();
  if (view === null || place.path !== before.path || place.view !== "runs") {
    if (place.bucketId !== before.bucketId) bucket = null;
    closeDialogs();
    view = viewAt(main, {
      ...place,
      bucket: () => bucket,
      refresh,
      nameOfBucket: () => (bucket ?? buckets.find(({ id }) => id === place.bucketId))?.name ?? place.bucketId,
      changed: bucketsChanged,
      showRun: (id) => showRun(place.bucketId, id),
    });
    drawSubject(place, bucket, buckets);
    showBlocked();
    if (moved) main.focus({ preventScroll: true });
    if (moved) scrollTo(0, 0);
  }
  await refresh();
}

async function refresh() {
  if (!following || view === null || document.hidden) return;
  const now = view;
  await Promise.all([now.refresh().catch(() => {}), refreshBucket().catch(() => {})]);
  if (view === now) document.title = [now.title, bucket?.name, "ops"].filter(Boolean).join(" · ");
}

async function refreshBucket() {
  const { bucketId } = place;
  if (bucketId === undefined) return;
  if (buckets.length === 0) buckets = await unless(all("/api/buckets?limit=500"), []);
  const found = await call("GET", bucketPath(bucketId));
  if (place.bucketId !== bucketId || !following) return;
  const isFirst = bucket === null;
  bucket = found;
  buckets = buckets.map((one) => (one.id === bucketId ? found : one));
  drawSubject(place, bucket, buckets);
  offerRun(bucketId, found.last_run?.id);
  if (isFirst) await view?.refresh();
}

function bucketsChanged(found) {
  buckets = found.toSorted((a, b) => a.project.localeCompare(b.project) || a.name.localeCompare(b.name));
  const ran = found.filter(({ last_run: run }) => run);
  const [newest] = ran.sort((a, b) => b.last_run.created_at.localeCompare(a.last_run.created_at));
  if (newest && shown.runId === null) showRun(newest.id, newest.last_run.id);
  return buckets;
}

function showBlocked() {
  const { status, kind, bucketId } = shown;
  const why = `${kind} runs in this bucket`;
  blockStarts(status === "running" ? bucketId : null, why);
}
