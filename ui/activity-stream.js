import { bucketPath } from "./api.js";

const WAIT_S = 30;
const RETRY_MS = [500, 1_000, 2_000, 5_000];
const encoder = new TextEncoder();

/** The requests about one run. Each ends with `signal`; while the server cannot be reached they are tried again. */
export class RunStream {
  bucketId;
  runId;
  signal;
  #api;
  #onTrouble;

  /** `onTrouble` hears why a request does not succeed, and the empty text once one has. */
  constructor(api, bucketId, runId, signal, onTrouble) {
    Object.assign(this, { bucketId, runId, signal });
    this.#api = api;
    this.#onTrouble = onTrouble;
  }

  path(rest = "") {
    return bucketPath(this.bucketId, `/runs/${this.runId}${rest}`);
  }

  /** What is known about the run. */
  run() {
    return this.#persistently(() => this.#get(this.path()));
  }

  cancel() {
    return this.#api.call("POST", this.path("/cancel"), { body: {}, signal: this.signal });
  }

  /** Reads what is added to the log of the run into `file`, to its end; `onBytes` hears each piece. */
  async follow(file, onBytes) {
    for (let done = false; !done; ) {
      const path = this.path(`/logs?after=${file.size}&timeout=${WAIT_S}`);
      const chunk = await this.#persistently(() => this.#get(path));
      const bytes = encoder.encode(chunk.data);
      if (bytes.length > 0) file.append(bytes, chunk.next);
      if (bytes.length > 0) onBytes(bytes);
      done = chunk.done;
    }
    file.end();
  }

  /** A page of the lines that hold a text, from the place `after` on: `<offset>.<line>` of the first line. */
  search({ q, exact, after, limit, signal = this.signal }) {
    const query = new URLSearchParams({ q, after, limit, case: exact });
    return this.#api.call("GET", this.path(`/logs/search?${query}`), { signal });
  }

  /** Some bytes of the log. */
  async bytes(from, to) {
    const get = () =>
      fetch(this.path("/activity.log"), {
        headers: { Range: `bytes=${from}-${to - 1}` },
        ...{ signal: this.signal, credentials: "same-origin", cache: "no-store" },
      });
    let response = await get();
    if (!response.ok) {
      // Signs in again or verifies a code where that is what it needs, and says what is wrong where it is not.
      await this.#get(this.path());
      response = await get();
    }
    if (!response.ok)
      throw new Error(`The log cannot be read: the server answered with status ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    return response.status === 206 ? bytes : bytes.subarray(from, to);
  }

  #get(path) {
    return this.#api.call("GET", path, { signal: this.signal });
  }

  async #persistently(request) {
    for (let failures = 0; ; failures++) {
      try {
        const answer = await request();
        this.#onTrouble("");
        return answer;
      } catch (error) {
        if (this.signal.aborted || (error.status !== 0 && !(error.status >= 500))) throw error;
        const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
        this.#onTrouble(`${error.message}. Trying again every ${Math.max(1, wait / 1000)} s.`);
        await pause(wait, this.signal);
      }
    }
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
