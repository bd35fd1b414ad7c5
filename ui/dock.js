import { ActivityPanel } from "./activity.js";
import * as api from "./api.js";
import { words } from "./format.js";

const dock = document.getElementById("dock");
const fold = document.getElementById("dock-fold");

/**
 * The place of the Activity panel below every view. It shows one run at a time, of one bucket; `onChange` hears whenever
 * the run or its state is another one.
 */
export class Dock {
  #bucketId = null;
  #state = { runId: null, status: null, kind: null, bucketId: null };
  #panel;

  constructor(onChange) {
    this.#panel = new ActivityPanel(document.getElementById("activity"), {
      api,
      bucketId: () => this.#bucketId,
    });
    this.#panel.onState((state) => {
      this.#state = state;
      dock.hidden = state.runId === null;
      this.#label();
      onChange(state);
    });
    fold.addEventListener("click", () => this.#fold(fold.getAttribute("aria-expanded") === "true"));
  }

  /** What is shown: `{runId, status, kind, bucketId}`. */
  get state() {
    return this.#state;
  }

  /** Shows a run instead of the one before; the same one goes on. */
  show(bucketId, runId) {
    if (this.#state.runId === runId) return;
    this.#bucketId = bucketId;
    this.#panel.show(runId);
  }

  /** Shows the newest run of a bucket, unless an active run is streamed or a run of this bucket is shown already. */
  offer(bucketId, runId) {
    const { status, bucketId: shown } = this.#state;
    if (runId && status !== "running" && shown !== bucketId) this.show(bucketId, runId);
  }

  unfold() {
    this.#fold(false);
  }

  /** Opens the panel's own search. */
  find() {
    this.unfold();
    this.#panel.find?.();
  }

  clear() {
    this.#panel.close();
  }

  #fold(folded) {
    dock.classList.toggle("folded", folded);
    fold.setAttribute("aria-expanded", String(!folded));
    this.#label();
  }

  /** Folded, the bar alone tells how the run stands. */
  #label() {
    const { kind, status } = this.#state;
    const isFolded = dock.classList.contains("folded");
    fold.textContent = isFolded && kind !== null ? `Activity: ${words(kind)} ${status}` : "Activity";
  }
}
