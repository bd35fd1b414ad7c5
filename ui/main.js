// The page: signs in, shows the view of the address, follows the server, and reads again what has changed.
import { address, bucketPath, get, pageAt, unless } from "./base/api.js";
import { el } from "./base/dom.js";
import { followServer } from "./base/live.js";
import { tick } from "./base/text.js";
import { activity } from "./frame/activity.js";
import { startKeys } from "./frame/keys.js";
import { drawNavigation } from "./frame/navigation.js";
import { startPalette } from "./frame/palette.js";
import { startSession } from "./frame/session.js";
import { closeDialogs } from "./parts/dialog.js";
import { blockStarts, onStarted } from "./parts/order.js";
import { viewAt } from "./routes.js";

const [TICK_MS, POLL_MS, FAST_MS] = [1_000, 10_000, 1_000];

const main = document.getElementById("view");
const [badge, banner] = ["live", "banner"].map((id) => document.getElementById(id));

/** What the page shows now. */
const shown = {
  place: address(),
  /** @type {import("./routes.js").View | null} */
  view: null,
  bucket: null,
  buckets: [],
  /** Ends what belongs to the view, and what belongs to the session. */
  leaving: new AbortController(),
  session: null,
  /** How far each address was scrolled. */
  scrolls: new Map(),
};

activity.start({ onChange: refresh });
startKeys();
startPalette(() => shown);
onStarted((bucketId, runId) => {
  activity.show(bucketId, runId);
  refresh();
});
addEventListener("hashchange", () => shown.session && open());
document.getElementById("skip").onclick = () => main.focus();
document.addEventListener("visibilitychange", () => refresh());
main.addEventListener("scroll", () => shown.scrolls.set(location.hash, main.scrollTop), { passive: true });
setInterval(() => !document.documentElement.classList.contains("stale") && tick(), TICK_MS);
setInterval(refresh, POLL_MS);
setInterval(() => shown.view?.fast && shown.bucket?.active_run && refresh(), FAST_MS);
startSession({ onSignIn, onSignOut, onEnd: () => shown.session?.abort() });

function onSignIn() {
  document.body.classList.remove("signed-out");
  shown.session?.abort();
  shown.session = new AbortController();
  followServer({ badge, banner, onChange: refresh, signal: shown.session.signal });
  open();
}

function onSignOut() {
  shown.session?.abort();
  shown.leaving.abort();
  Object.assign(shown, { session: null, view: null, bucket: null, buckets: [] });
  activity.clear();
  closeDialogs();
  document.body.classList.add("signed-out");
}

/** Shows the view of the address. */
async function open() {
  const [before, place] = [shown.place, address()];
  const isSame = shown.view !== null && place.path === before.path && !shown.view.queried;
  shown.place = place;
  if (isSame) return refresh();
  if (place.bucketId !== before.bucketId) shown.bucket = null;
  shown.leaving.abort();
  shown.leaving = new AbortController();
  const { signal } = shown.leaving;
  closeDialogs();
  activity.arrive();
  const [make] = await Promise.all([viewAt(place), readBucket().catch(() => {})]);
  if (signal.aborted || !shown.session) return;
  const page = {
    ...pageAt(place),
    ...{ signal, refresh },
    bucket: () => shown.bucket,
    nameOfBucket: () => shown.bucket?.name ?? shown.buckets.find(({ id }) => id === place.bucketId)?.name ?? place.bucketId,
    buckets: () => shown.buckets,
    showRun: (runId, at) => activity.show(place.bucketId, runId, at),
  };
  shown.view = make(page);
  main.replaceChildren(shown.view.element);
  if (before.path !== place.path) main.focus({ preventScroll: true });
  main.scrollTop = 0;
  await refresh();
  main.scrollTop = shown.scrolls.get(location.hash) ?? 0;
}

/** Reads again what is shown. */
async function refresh() {
  const { view, session } = shown;
  if (!session || document.hidden) return;
  await readBucket().catch(() => {});
  await view?.refresh?.();
  if (view && view === shown.view) document.title = [view.title, shown.bucket?.name, "ops"].filter(Boolean).join(" · ");
}

/** The bucket of the address with its summary, for the navigation, the status bar and the view. */
async function readBucket() {
  const { bucketId } = shown.place;
  if (!bucketId) return showFrame();
  if (shown.buckets.length === 0) shown.buckets = (await get("/api/buckets?limit=500")).items;
  const [bucket, summary] = await Promise.all([get(bucketPath(bucketId)), unless(get(bucketPath(bucketId, "/summary")), null)]);
  if (shown.place.bucketId !== bucketId) return;
  shown.bucket = { ...bucket, summary };
  showFrame();
}

function showFrame() {
  const { place, bucket, buckets } = shown;
  const { active_run: runId, last_run: last } = bucket ?? {};
  const run = runId && { bucketId: bucket.id, runId, kind: last?.id === runId ? last.kind : "run", created_at: last?.created_at };
  drawNavigation({ place, bucket: place.bucketId ? bucket : null, buckets });
  blockStarts(run || null);
  if (bucket && last && place.bucketId === bucket.id) activity.offer(bucket.id, last.id);
  document.getElementById("status").hidden = !place.bucketId;
}

main.replaceChildren(el("h1.unseen", "ops"));
