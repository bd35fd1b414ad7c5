import { bucketPath, call } from "./api.js";
import { el, tell } from "./dom.js";
import { duration, size, status } from "./format.js";

const WAIT_S = 30;
const RETRY_MS = [500, 1_000, 2_000, 5_000];
/** How much of a long log is fetched from its end, and how much text the page keeps. */
const TAIL_BYTES = 1024 * 1024;
const KEPT_CHARACTERS = 2 * 1024 * 1024;

/**
 * The Activity panel: the output of one run at a time, from its start on and then as it comes.
 * `onChange` is called when the run or its state is another one, `onEnd` when a run has ended that was followed.
 */
export class Activity {
  #panel;
  #parts = {};
  #onChange;
  #onEnd;
  #names = new Map();
  #bucket = null;
  #run = null;
  #kept = 0;
  #cancelling = false;
  #stream = new AbortController();

  constructor(panel, { onChange, onEnd }) {
    this.#panel = panel;
    this.#onChange = onChange;
    this.#onEnd = onEnd;
    for (const part of panel.querySelectorAll("[data-part]")) this.#parts[part.dataset.part] = part;
    this.#parts.cancel.addEventListener("click", () => this.#cancel());
    this.#parts.output.addEventListener("scroll", () => this.#scrolled());
    this.#parts.follow.addEventListener("change", () => this.#follow());
  }

  /** The id of the run that is shown, or null. */
  get runId() {
    return this.#run?.id ?? null;
  }

  /** The bucket whose active run is streaming, or null. */
  get activeBucket() {
    return this.#run?.status === "running" ? this.#bucket : null;
  }

  /** True when the newest run of a bucket may be shown without being asked for. */
  isFreeFor(bucketId) {
    return this.activeBucket === null && this.#bucket !== bucketId;
  }

  /** What a bucket is called here. */
  name(bucketId, name) {
    if (this.#names.get(bucketId) === name) return;
    this.#names.set(bucketId, name);
    this.#draw();
  }

  /** Shows a run instead of the one before; the same one goes on. */
  show(bucketId, runId) {
    if (this.runId === runId) return;
    this.clear();
    this.#bucket = bucketId;
    this.#run = { id: runId, kind: "", status: "", error: null };
    this.#panel.hidden = false;
    this.#stream = new AbortController();
    this.#draw();
    this.#onChange();
    this.#read(bucketId, runId, this.#stream.signal);
  }

  /** Brings the panel into sight where it lies below the view. */
  reveal() {
    this.#panel.scrollIntoView({ block: "nearest" });
  }

  /** Shows nothing. */
  clear() {
    this.#stream.abort();
    [this.#bucket, this.#run, this.#kept, this.#cancelling] = [null, null, 0, false];
    this.#panel.hidden = true;
    this.#parts.output.replaceChildren();
    this.#parts.follow.checked = true;
    tell(this.#parts.error, "");
    tell(this.#parts.omitted, "");
  }

  async #read(bucketId, runId, signal) {
    const path = bucketPath(bucketId, `/runs/${runId}`);
    const run = await this.#persistently(() => call("GET", path, { signal }), signal);
    if (!run) return;
    let after = Math.max(0, run.log_size_bytes - TAIL_BYTES);
    if (after > 0) tell(this.#parts.omitted, `The first ${size(after)} are left out here.`);
    this.#update(run);
    const wasActive = run.status === "running";
    for (let done = false; !done; ) {
      const logs = `${path}/logs?after=${after}&timeout=${WAIT_S}`;
      const chunk = await this.#persistently(() => call("GET", logs, { signal }), signal);
      if (!chunk) return;
      this.#append(chunk.data);
      ({ next: after, done } = chunk);
    }
    const ended = await this.#persistently(() => call("GET", path, { signal }), signal);
    if (!ended) return;
    this.#update(ended);
    if (wasActive) this.#onEnd();
  }

  /** Repeats a request while the server cannot be reached; undefined when another run is shown or it is refused. */
  async #persistently(request, signal) {
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        const answer = await request();
        if (signal.aborted) return undefined;
        tell(this.#parts.error, "");
        return answer;
      } catch (error) {
        if (signal.aborted) return undefined;
        const again = error.status === 0 || error.status >= 500;
        tell(this.#parts.error, again ? `${error.message}; trying again …` : error.message);
        if (!again) return undefined;
        await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], signal);
      }
    }
    return undefined;
  }

  #update(run) {
    const { id, kind, status: state, error, duration_ms } = run;
    this.#run = { id, kind, status: state, error, duration_ms };
    this.#draw();
    this.#onChange();
  }

  #draw() {
    if (!this.#run) return;
    const { kind, status: state, error, duration_ms } = this.#run;
    const where = this.#names.get(this.#bucket) ?? this.#bucket;
    this.#parts.subject.textContent = kind === "" ? "" : `${kind} in ${where}`;
    this.#parts.state.replaceChildren(...(state === "" ? [] : [status(state)]));
    if (state === "running" && this.#cancelling) this.#parts.state.append(", cancelling …");
    if (state !== "running" && state !== "") this.#parts.state.append(` after ${duration(duration_ms)}`);
    if (error) this.#parts.state.append(el("span", { class: "why" }, error));
    this.#parts.cancel.hidden = state !== "running";
    this.#parts.cancel.disabled = this.#cancelling;
  }

  #append(text) {
    if (text === "") return;
    const { output, omitted } = this.#parts;
    output.append(text);
    this.#kept += text.length;
    while (this.#kept > KEPT_CHARACTERS && output.childNodes.length > 1) {
      this.#kept -= output.firstChild.data.length;
      output.firstChild.remove();
      tell(omitted, "The beginning is left out here.");
    }
    this.#follow();
  }

  #follow() {
    const { output, follow } = this.#parts;
    if (follow.checked) output.scrollTop = output.scrollHeight;
  }

  #scrolled() {
    const { output, follow } = this.#parts;
    follow.checked = output.scrollHeight - output.scrollTop - output.clientHeight < 24;
  }

  async #cancel() {
    const { signal } = this.#stream;
    this.#cancelling = true;
    this.#draw();
    try {
      await call("POST", bucketPath(this.#bucket, `/runs/${this.runId}/cancel`), { body: {}, signal });
    } catch (error) {
      if (signal.aborted) return;
      this.#cancelling = false;
      this.#draw();
      tell(this.#parts.error, `Cannot cancel: ${error.message}`);
    }
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
