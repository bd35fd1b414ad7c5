import { Activity } from "./activity.js";
import { bucketsView } from "./buckets.js";
import { el } from "./dom.js";
import { bucketView } from "./runs.js";
import { startSession } from "./sign-in.js";

const REFRESH_MS = 10_000;
const BUCKET = /^#\/buckets\/([0-9a-f-]{36})(?:\/runs\/([0-9a-f-]{36}))?(?:\?.*)?$/;

const main = document.getElementById("view");
const activity = new Activity(document.getElementById("activity"), {
  onChange: () => view?.showActivity?.(),
  onEnd: () => refresh(),
});

let signedIn = false;
let view = null;

startSession({
  onSignIn() {
    signedIn = true;
    open();
  },
  onSignOut() {
    signedIn = false;
    view = null;
    activity.clear();
    main.replaceChildren(el("h1", {}, "ops"), el("p", {}, "Sign in with the API token of this server."));
  },
});
addEventListener("hashchange", () => {
  if (signedIn) open({ moved: true });
});
document.getElementById("skip").addEventListener("click", () => main.focus());
document.addEventListener("visibilitychange", () => refresh());
setInterval(() => refresh(), REFRESH_MS);

/** Shows what the address names. */
async function open({ moved = false } = {}) {
  const [, bucketId, runId] = BUCKET.exec(location.hash) ?? [];
  const stays = view !== null && bucketId !== undefined && view.bucketId === bucketId;
  if (!stays) view = viewOf(bucketId);
  if (runId) activity.show(bucketId, runId);
  if (moved && !stays) main.focus();
  await refresh();
  if (moved && runId) activity.reveal();
}

function viewOf(bucketId) {
  if (bucketId) return bucketView(main, bucketId, activity);
  if (location.hash === "" || location.hash === "#/") return bucketsView(main, activity);
  main.replaceChildren(
    el("h1", {}, "There is no such page"),
    el("p", {}, el("a", { href: "#/" }, "Go to the buckets")),
  );
  return { title: "No such page", refresh: async () => {} };
}

async function refresh() {
  if (!signedIn || view === null || document.hidden) return;
  const shown = view;
  await shown.refresh();
  if (view === shown) document.title = `${shown.title} · ops`;
}
