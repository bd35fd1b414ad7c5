import { clearActivity, offerRun, shown, showRun, startActivity, unfold } from "./activity.js";
import { address } from "./address.js";
import { all, bucketPath, call, unless } from "./api.js";
import { blockStarts, onStarted } from "./controls.js";
import { closeDialogs } from "./dialog.js";
import { el } from "./dom.js";
import { tick } from "./format.js";
import { startKeys } from "./keys.js";
import { followEvents } from "./live.js";
import { drawSubject, viewAt } from "./routes.js";
import { startSession } from "./sign-in.js";

const TICK_MS = 5_000;

const main = document.getElementById("view");

let signedIn = false;
let view = null;
let place = address();
let bucket = null;
let buckets = [];
let following = new AbortController();

startSession({ onSignIn, onSignOut });
startActivity(activityChanged);
startKeys();
onStarted((bucketId, runId) => {
  showRun(bucketId, runId);
  unfold();
  refresh();
});
addEventListener("hashchange", () => signedIn && open(true));
document.getElementById("skip").addEventListener("click", () => main.focus());
document.addEventListener("visibilitychange", () => refresh());
setInterval(tick, TICK_MS);

function onSignIn() {
  signedIn = true;
  following = new AbortController();
  followEvents(refresh, following.signal);
  open(false);
}

function onSignOut() {
  signedIn = false;
  following.abort();
  [view, bucket, buckets] = [null, null, []];
  clearActivity();
  closeDialogs();
  drawSubject({}, null, []);
  main.replaceChildren(el("h1", {}, "ops"), el("p", {}, "Sign in with the API token of this server."));
  document.title = "ops";
}

/** Shows what the address names. Where only its query is another one, a run's log is the same view still. */
async function open(moved) {
  const before = place;
  place = address();
  const same = view !== null && JSON.stringify(pathOf(place)) === JSON.stringify(pathOf(before));
  if (!same || place.view !== "runs") {
    if (place.bucketId !== before.bucketId) bucket = null;
    closeDialogs();
    view = viewAt(main, {
      ...place,
      bucket: () => bucket,
      refresh,
      nameOfBucket: () => bucket?.name ?? place.bucketId,
      changed: bucketsChanged,
      showRun: (id) => showRun(place.bucketId, id),
    });
    drawSubject(place, bucket, buckets);
    showBlocked();
    if (moved) arrive();
  }
  await refresh();
}

function pathOf({ bucketId, view: name, rest }) {
  return [bucketId, name, rest];
}

function arrive() {
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Reads the view again, and the bucket that it is about. Failures of the view are said in the view. */
async function refresh() {
  if (!signedIn || view === null || document.hidden) return;
  const shown = view;
  await Promise.all([shown.refresh().catch(() => {}), refreshBucket().catch(() => {})]);
  if (view === shown)
    document.title = bucket ? `${shown.title} · ${bucket.name} · ops` : `${shown.title} · ops`;
}

async function refreshBucket() {
  const { bucketId } = place;
  if (bucketId === undefined) return;
  if (buckets.length === 0) buckets = await unless(all("/api/buckets?limit=500"), []);
  const found = await call("GET", bucketPath(bucketId));
  if (place.bucketId !== bucketId || !signedIn) return;
  const isFirst = bucket === null;
  bucket = found;
  buckets = buckets.map((one) => (one.id === bucketId ? found : one));
  drawSubject(place, bucket, buckets);
  offerRun(bucketId, found.last_run?.id);
  if (isFirst) await view?.refresh();
}

function bucketsChanged(found) {
  buckets = found.toSorted((a, b) => a.project.localeCompare(b.project) || a.name.localeCompare(b.name));
  const runs = found
    .filter(({ last_run }) => last_run)
    .map(({ id, last_run }) => ({ bucketId: id, ...last_run }));
  const [newest] = runs.sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  if (newest && shown.runId === null) showRun(newest.bucketId, newest.id);
}

function activityChanged() {
  showBlocked();
  refresh();
}

/** Only the bucket of the visible stream is blocked; the server refuses whatever else is in the way. */
function showBlocked() {
  const { status, kind, bucketId } = shown;
  blockStarts(
    status === "running" ? bucketId : null,
    `${kind} runs in this bucket: wait for its end or cancel it`,
  );
}
