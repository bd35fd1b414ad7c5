import { bucketPath, link, pause, request } from "./api.js";
import { button, el } from "./dom.js";

const LOOK_MS = 2_000;
const place = document.getElementById("queue");

/** Takes back whatever waits. */
export function clearQueue() {
  place.replaceChildren();
}

/** Starts once that run has ended. */
export async function startAfter(bucketId, runId, what, start) {
  const says = el("span");
  const item = el(
    "li",
    says,
    button("Take back", () => item.remove()),
  );
  place.append(item);
  for (let after = runId; item.isConnected; ) {
    const run = el("a", { href: link(bucketId, "runs", [after]) }, "this run");
    says.replaceChildren(`${what}: queued, starts after `, run);
    await endOf(bucketId, after, item);
    if (!item.isConnected) return;
    try {
      await start();
      item.remove();
    } catch (error) {
      after = error.runId;
      if (after) continue;
      says.replaceChildren(el("span.why", `${what}: not started: ${error.message}`));
      return;
    }
  }
}

async function endOf(bucketId, runId, item) {
  for (let status = "running"; status === "running" && item.isConnected; ) {
    await pause(LOOK_MS);
    const run = request("GET", bucketPath(bucketId, `/runs/${runId}`));
    status = await run.then(
      (one) => one.status,
      () => status,
    );
  }
}
