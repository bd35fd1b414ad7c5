import { bucketPath, call } from "./api.js";
import { ask } from "./dialog.js";
import { el } from "./dom.js";
import { ago } from "./format.js";

/** How far a run and the jobs it rolls out are, and what it waits for. */
export function progressOf(progress) {
  if (!progress) return null;
  const { phase, done, total, waiting, rollouts } = progress;
  const bar = el("progress", { max: Math.max(total, 1), value: done });
  const waits = waiting.map(({ on, since }) => el("li", "waits for ", el("b", on), ", since ", ago(since)));
  const jobs = rollouts.map(({ job, action, batch, batches, workers, done: ready, failed }) =>
    el(
      "li",
      el("b", job),
      `: ${action}, batch ${batch} of ${batches}, ${ready} of ${workers} workers, ${failed} failed`,
    ),
  );
  return el(
    "div.run-progress",
    el("label", `${phase}: ${done} of ${total} `, bar),
    waits.length + jobs.length > 0 && el("ul", jobs, waits),
  );
}

/** Asks whether a run is to be cancelled, and cancels it; answers whether it was. */
export function cancelRun(bucketId, { id, kind }) {
  return ask({
    title: "Cancel this run?",
    says: [
      `Stops ${kind} as soon as it can; what it has done until then stays done.`,
      "What is still running after 10 seconds is ended by force. Commands on workers are told to stop too.",
    ],
    action: "Yes, cancel it",
    leave: "Keep it running",
    danger: true,
    submit: () => call("POST", bucketPath(bucketId, `/runs/${id}/cancel`), { body: {} }),
  });
}
