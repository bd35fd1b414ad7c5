import { el } from "./dom.js";
import { ago } from "./format.js";

/** How far a run is and what it waits for. */
export function progressOf(progress) {
  if (!progress) return null;
  const { phase, done, total, waiting } = progress;
  const waits = waiting.map(({ on, since }) =>
    el("li", {}, "waits for ", el("b", {}, on), ", since ", ago(since)),
  );
  return el(
    "div",
    { class: "run-progress" },
    el(
      "label",
      {},
      `${phase}: ${done} of ${total} `,
      el("progress", { max: Math.max(total, 1), value: done }),
    ),
    waits.length === 0 ? null : el("ul", {}, ...waits),
  );
}
