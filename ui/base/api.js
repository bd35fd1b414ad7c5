/**
 * Who asks for a code, who hears that the session has ended, and who hears of each answer; and the number of sign-ins and
 * codes so far, for a late answer to a request from before says nothing about now.
 */
export const session = { askForCode: async (_token) => {}, end() {}, heard() {}, number: 0 };

/** How long an answer may take; a long-poll takes its own time beside. */
const LIMIT_MS = 10_000;

/**
 * A request, sent once more after a TOTP code where the server asks for one.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @typedef {{ body?: any, token?: string, signal?: AbortSignal, headers?: HeadersInit, as?: "json" | "blob" | "response",
 *   limitMs?: number }} Options
 */
export async function call(method, path, options = {}) {
  const { number } = session;
  try {
    return await request(method, path, options);
  } catch (error) {
    if (error.code !== "totp_required") throw error;
    if (number === session.number) await session.askForCode(options.token);
    return await request(method, path, options);
  }
}

/**
 * Reads JSON.
 * @param {string} path
 * @param {Options} [options]
 */
export function get(path, options) {
  return call("GET", path, options);
}

/**
 * A request. Its errors have `status` (0 without an answer), `code`, `details`, `runId` and `response`.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 */
export async function request(method, path, { body, token, headers: own, as = "json", ...rest } = {}) {
  const headers = new Headers(own);
  if (method !== "GET") headers.set("X-Ops-CSRF", "1");
  if (token !== undefined) headers.set("Authorization", `Bearer ${token}`);
  const isRaw = headers.has("Content-Type") || body === undefined;
  if (!isRaw) headers.set("Content-Type", "application/json");
  const options = { method, headers, body: isRaw ? body : JSON.stringify(body), cache: /** @type {const} */ ("no-store") };
  const { number } = session;
  const [response, answer] = await answerOf(path, options, as, rest);
  if (response.ok) return answer;
  if (answer.error === "unauthorized" && token === undefined && number === session.number) session.end();
  const { message = `The server answered with status ${response.status}`, error: code, details, run_id: runId } = answer;
  throw Object.assign(new Error(message), { status: response.status, code, details, runId, response });
}

/**
 * The response and its body. The body of an error may be anything; a body that breaks off is a failure.
 * @param {string} path @param {RequestInit} options @param {"json" | "blob" | "response"} as @param {Options} limits
 */
async function answerOf(path, options, as, { signal, limitMs = LIMIT_MS }) {
  const limit = AbortSignal.timeout(limitMs);
  try {
    const response = await fetch(path, { ...options, signal: AbortSignal.any([limit, ...(signal ? [signal] : [])]) });
    session.heard();
    if (!response.ok) {
      const copy = response.clone();
      return [response, await copy.json().catch(() => ({}))];
    }
    const isUnread = as === "response" || response.status === 204;
    return [response, isUnread ? response : await response[as]()];
  } catch (error) {
    if (signal?.aborted) throw error;
    if (error instanceof SyntaxError)
      throw Object.assign(new Error("The answer is not JSON: is a proxy in the way?"), { status: 0 });
    const message = limit.aborted ? `The server gave no answer within ${limitMs / 1000} s` : "The server cannot be reached";
    throw Object.assign(new Error(message), { status: 0 });
  }
}

/** A request as a shell command. */
export function curlOf(method, path, content, headers = { "Content-Type": "application/json" }) {
  const parts = [
    `curl -sS${method === "GET" ? "" : ` -X ${method}`} ${quoted(location.origin + path)}`,
    '-H "Authorization: Bearer $OPS_SERVE_TOKEN"',
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
  ];
  if (content?.name) parts.push(`--data-binary @${quoted(content.name)}`);
  else if (content) parts.push(`--data-raw ${quoted(content)}`);
  return parts.join(" \\\n  ");
}

/** A word for the shell. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Waits, or until the signal aborts. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
  });
}

/** A path of the API below a bucket. */
export function bucketPath(id, rest = "") {
  return `/api/buckets/${encodeURIComponent(id)}${rest}`;
}

/** A path within a path. */
export function encoded(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

/** The items of a list, at most `most`; `cut` says whether there are more. */
export async function listOf(path, most = 5_000) {
  const items = [];
  let next = path;
  while (next && items.length < most) {
    const { items: page, next_cursor: cursor } = await get(next);
    items.push(...page);
    next = cursor && `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`;
  }
  return Object.assign(items, { cut: Boolean(next) });
}

/** `otherwise` where there is nothing to read yet: 404, and 409 of a bucket without a database. */
export async function unless(reading, otherwise) {
  try {
    return await reading;
  } catch (error) {
    if (error.status !== 404 && error.code !== "bucket_not_initialized") throw error;
    return otherwise;
  }
}

/** The newest runs of a bucket, by kind and status. */
export async function runsOf(bucketId, { kind = "", status = "", limit = 1 }) {
  return (await unless(get(bucketPath(bucketId, `/runs?${queryOf({ kind, limit, status })}`)), { items: [] })).items;
}

/** A query of what is given. */
export function queryOf(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => (value ?? "") !== "" && value !== false));
}

/** The address of a view of a bucket. */
export function link(bucketId, view = "", rest = [], query = {}) {
  const path = ["buckets", bucketId, view, ...rest].filter((part) => part !== "").map(encodeURIComponent);
  const search = queryOf(query);
  return `#/${path.join("/")}${search.size > 0 ? `?${search}` : ""}`;
}

/**
 * What a view gets of its address.
 * @param {{ bucketId: string, view?: string, rest?: string[], query?: URLSearchParams }} place
 */
export function pageAt({ bucketId, view = "", rest = [], query = new URLSearchParams() }) {
  const path = (rest = "") => (bucketId ? bucketPath(bucketId, rest) : rest);
  return {
    bucketId,
    view,
    rest,
    query,
    path,
    get: (rest = "", options = {}) => get(path(rest), options),
    list: (rest = "", most = undefined) => listOf(path(rest), most),
    link: (name, ...more) => link(bucketId, name, ...more),
  };
}

/** The present address. `known` is false where it can be no view. */
export function address() {
  const [, path = "", search = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  const [first = "", ...others] = path.split("/").filter(Boolean).map(decode);
  const [bucketId, view = "", ...rest] = first === "buckets" ? others : [undefined, first, ...others];
  const known = first !== "buckets" || bucketId !== undefined;
  return { known, path, bucketId, view, rest, query: new URLSearchParams(search) };
}

/** Changes the query of the address; the view stays. */
export function keepQuery(changes) {
  const { path, query } = address();
  const search = queryOf({ ...Object.fromEntries(query), ...changes });
  history.replaceState(history.state, "", `#/${path}${search.size > 0 ? `?${search}` : ""}`);
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
