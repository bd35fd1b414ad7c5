import { el, tell } from "./dom.js";
import { duration, status } from "./format.js";

/** The head of the Activity panel: which run, how it stands, for how long, why it failed, and how to cancel it. */
export class ActivityHead {
  element;
  #subject = el("p", { class: "subject" });
  #state = el("p", { class: "state", role: "status" });
  #elapsed = el("span", { class: "elapsed" });
  #progress = el("p", { class: "progress", hidden: true });
  #why = el("p", { class: "why", hidden: true });
  #problem = el("p", { class: "error", role: "alert", hidden: true });
  #cancel = el("button", { type: "button", class: "danger", hidden: true }, "Cancel run");
  #question = el("div", { class: "question", role: "group", "aria-label": "Cancel this run?", hidden: true });
  #run = null;
  #readAt = 0;
  #cancelling = false;
  #ticking;
  #onCancel;

  /** `onCancel` sends the cancel; what it throws is said here. */
  constructor(onCancel) {
    this.#onCancel = onCancel;
    this.#cancel.addEventListener("click", () => this.#ask(true));
    this.#question.addEventListener("keydown", ({ key }) => key === "Escape" && this.#ask(false));
    this.element = el(
      "header",
      {},
      el(
        "div",
        { class: "about" },
        this.#subject,
        el("div", { class: "stands" }, this.#state, this.#elapsed),
        this.#cancel,
      ),
      ...[this.#question, this.#progress, this.#why, this.#problem],
    );
  }

  /** Shows a run of a bucket that is called `where`; null shows none. */
  show(run, where) {
    const isOther = run?.id !== this.#run?.id;
    if (isOther) [this.#cancelling, this.#question.hidden] = [false, true];
    if (isOther) this.problem("");
    [this.#run, this.#readAt] = [run, performance.now()];
    const running = run?.status === "running";
    this.#subject.textContent = run ? `${run.kind} in ${where}` : "";
    const words = run ? [status(run.status), ...(running && this.#cancelling ? [" cancelling …"] : [])] : [];
    if (this.#state.textContent !== words.map((word) => word.textContent ?? word).join(""))
      this.#state.replaceChildren(...words);
    tell(this.#why, run?.error ?? "");
    tell(this.#progress, running ? progressText(run.progress) : "");
    if (!running) this.#question.hidden = true;
    this.#cancel.hidden = !running || !this.#question.hidden;
    this.#cancel.disabled = this.#cancelling;
    this.#tick();
    clearInterval(this.#ticking);
    if (running) this.#ticking = setInterval(() => this.#tick(), 1000);
    this.where = where;
  }

  /** Says what is wrong; the empty text, that nothing is. */
  problem(message) {
    if (this.#problem.textContent !== message) tell(this.#problem, message);
  }

  #tick() {
    const run = this.#run;
    const running = run?.status === "running";
    const ms = run ? run.duration_ms + (running ? performance.now() - this.#readAt : 0) : 0;
    this.#elapsed.textContent = run
      ? `${running ? "for" : "after"} ${duration(running ? Math.floor(ms / 1000) * 1000 : ms)}`
      : "";
  }

  #ask(now) {
    const keep = el("button", { type: "button", onclick: () => this.#ask(false) }, "Keep it running");
    const cancel = el(
      "button",
      { type: "button", class: "danger", onclick: () => this.#send() },
      "Yes, cancel it",
    );
    const question = `Cancel ${this.#run.kind} in ${this.where}? What has been done stays done; what runs on workers is asked to stop.`;
    this.#question.replaceChildren(el("p", {}, question), cancel, keep);
    this.#question.hidden = !now;
    this.#cancel.hidden = now;
    (now ? keep : this.#cancel).focus();
  }

  async #send() {
    const { id } = this.#run;
    this.#cancelling = true;
    this.#question.hidden = true;
    this.show(this.#run, this.where);
    try {
      await this.#onCancel();
    } catch (error) {
      if (this.#run?.id !== id) return;
      this.#cancelling = false;
      this.show(this.#run, this.where);
      this.problem(`Cannot cancel: ${error.message}`);
    }
  }
}

/** `sync: 3 of 12; waiting for 10.0.0.7` */
function progressText(progress) {
  if (!progress) return "";
  const { phase, done, total, waiting } = progress;
  const count = total > 0 ? `${phase}: ${done} of ${total}` : phase;
  if (waiting.length === 0) return count;
  const more = waiting.length > 3 ? ` and ${waiting.length - 3} more` : "";
  return `${count}; waiting for ${waiting
    .slice(0, 3)
    .map(({ on }) => on)
    .join(", ")}${more}`;
}
