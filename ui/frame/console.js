// The page: signs in, shows the view of the address, follows the server, and reads again what has changed.
import { address, bucketPath, get, pageAt, unless } from "../base/api.js";
import { el } from "../base/dom.js";
import { followServer } from "../base/live.js";
import { tick } from "../base/text.js";
import { closeDialogs } from "../parts/dialog.js";
import { blockStarts, onStarted } from "../parts/order.js";
import { viewAt } from "../routes.js";
import { activity } from "./activity.js";
import { startKeys } from "./keys.js";
import { drawNavigation } from "./navigation.js";
import { startPalette } from "./palette.js";
import { startSession } from "./session.js";

const [TICK_MS, POLL_MS, FAST_MS] = [1_000, 10_000, 1_000];
const MOST_FRAMES = 10;

const main = document.getElementById("view");

/** What the page shows now. */
const shownNow = {
  place: address(),
  /** None until the view of a new address is drawn. @type {import("../routes.js").View | null} */
  view: null,
  bucket: null,
  /** Whether the server has no bucket with the id in the address. */
  isGone: false,
  buckets: [],
  /** Ends what belongs to the view, and what belongs to the session. */
  leaving: new AbortController(),
  session: null,
  /** How far each address was scrolled when a person left it. */
  scrolls: new Map(),
};

/** Starts the console in its page. */
export function startConsole() {
  activity.start({ onChange: refresh });
  startKeys();
  startPalette(() => shownNow);
  onStarted((bucketId, runId) => {
    activity.show(bucketId, runId);
    refresh();
  });
  addEventListener("hashchange", ({ oldURL }) => {
    if (shownNow.view) shownNow.scrolls.set(new URL(oldURL).hash, main.scrollTop);
    if (shownNow.session) openView();
  });
  document.getElementById("skip").onclick = () => main.focus();
  document.addEventListener("visibilitychange", () => refresh());
  setInterval(() => !document.documentElement.classList.contains("stale") && tick(), TICK_MS);
  setInterval(refresh, POLL_MS);
  setInterval(() => shownNow.view?.fast && shownNow.bucket?.active_run && refresh(), FAST_MS);
  startSession({ onSignIn, onSignOut, onEnd: () => shownNow.session?.abort() });
  main.replaceChildren(el("h1.unseen", "ops"));
}

function onSignIn() {
  document.body.classList.remove("signed-out");
  shownNow.session?.abort();
  shownNow.session = new AbortController();
  followServer({ onChange: refresh, signal: shownNow.session.signal });
  openView();
}

function onSignOut() {
  shownNow.session?.abort();
  shownNow.leaving.abort();
  Object.assign(shownNow, { session: null, view: null, bucket: null, buckets: [] });
  activity.clear();
  closeDialogs();
  document.body.classList.add("signed-out");
}

/** Shows the view of the address. */
async function openView() {
  const [before, place] = [shownNow.place, address()];
  shownNow.place = place;
  if (shownNow.view && place.path === before.path) return refresh();
  if (place.bucketId !== before.bucketId) shownNow.bucket = null;
  shownNow.leaving.abort();
  Object.assign(shownNow, { view: null, isGone: false, leaving: new AbortController() });
  const { signal } = shownNow.leaving;
  closeDialogs();
  activity.arrive();
  await readBucket().catch(() => {});
  if (signal.aborted || !shownNow.session) return;
  const page = {
    ...pageAt(place),
    ...{ signal, refresh },
    bucket: () => shownNow.bucket,
    nameOfBucket: () => (shownNow.bucket ?? shownNow.buckets.find(({ id }) => id === place.bucketId))?.name ?? place.bucketId,
    showRun: (runId, at) => activity.show(place.bucketId, runId, at),
  };
  shownNow.view = viewAt({ ...place, known: place.known && !shownNow.isGone })(page);
  main.replaceChildren(shownNow.view.element);
  if (before.path !== place.path) main.focus({ preventScroll: true });
  const left = shownNow.scrolls.get(location.hash) ?? 0;
  main.scrollTop = 0;
  await refresh();
  await scrollBack(left, signal);
}

/**
 * Scrolls the view back, unless a person has scrolled it meanwhile; waits a moment for the rows of a long list, which come
 * over several frames.
 */
async function scrollBack(place, signal) {
  for (let frames = 0, reached = 0; frames < MOST_FRAMES && !signal.aborted; frames++) {
    if (main.scrollTop !== reached || reached >= place - 1) return;
    main.scrollTop = place;
    reached = main.scrollTop;
    await new Promise(requestAnimationFrame);
  }
}

/** Reads again what the page shows. */
async function refresh() {
  const { view, session, isGone } = shownNow;
  if (!session || document.hidden) return;
  await readBucket().catch(() => {});
  if (view && view === shownNow.view && isGone !== shownNow.isGone) {
    shownNow.view = null;
    return openView();
  }
  await view?.refresh?.();
  if (view && view === shownNow.view) document.title = [view.title, shownNow.bucket?.name, "ops"].filter(Boolean).join(" · ");
}

/** The bucket of the address with its summary, for the navigation, the status bar and the view. */
async function readBucket() {
  const { bucketId } = shownNow.place;
  if (!bucketId) return showFrame();
  if (shownNow.buckets.length === 0) shownNow.buckets = (await get("/api/buckets?limit=500")).items;
  const read = (rest = "") => unless(get(bucketPath(bucketId, rest)), null);
  const [bucket, summary] = await Promise.all([read(), read("/summary")]);
  if (shownNow.place.bucketId !== bucketId) return;
  Object.assign(shownNow, { bucket: bucket && { ...bucket, summary }, isGone: !bucket });
  if (!bucket) activity.clear();
  showFrame();
}

function showFrame() {
  const { place, bucket, buckets } = shownNow;
  const { active_run: runId, last_run: last, summary } = bucket ?? {};
  const about = [summary?.active_run, last].find((one) => one?.id === runId);
  const run = runId && { kind: "run", ...about, bucketId: bucket.id, runId };
  drawNavigation({ place, bucket: place.bucketId ? bucket : null, buckets });
  blockStarts(run || null);
  if (bucket && last && place.bucketId === bucket.id) activity.offer(bucket.id, last.id);
  document.getElementById("status").hidden = !place.bucketId;
}
