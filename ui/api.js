/** Who asks for a code, and hears the end. */
export const session = { askForCode() {}, end() {} };

/** A request, sent again after a code. */
export async function call(method, path, options = {}) {
  try {
    return await request(method, path, options);
  } catch (error) {
    if (error.code !== "totp_required") throw error;
    await session.askForCode(options.token);
    return await request(method, path, options);
  }
}

/** A request; its errors have `status`, `code`, `runId`, `response`. */
export async function request(method, path, { body, token, signal, headers: own, as = "json" } = {}) {
  const headers = new Headers(own);
  if (method !== "GET") headers.set("X-Ops-CSRF", "1");
  if (token !== undefined) headers.set("Authorization", `Bearer ${token}`);
  const isRaw = headers.has("Content-Type") || body === undefined;
  if (!isRaw) headers.set("Content-Type", "application/json");
  const options = { method, headers, signal, body: isRaw ? body : JSON.stringify(body) };
  const response = await send(path, options);
  const { status } = response;
  if (response.ok && as !== "json") return as === "response" ? response : await response[as]();
  const answer = await response
    .clone()
    .json()
    .catch(() => ({}));
  if (response.ok) return answer;
  if (answer.error === "unauthorized" && token === undefined) session.end();
  const { message = `The server answered with status ${status}`, error: code, run_id: runId } = answer;
  throw Object.assign(new Error(message), { status, code, runId, response });
}

async function send(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw Object.assign(new Error("The server cannot be reached"), { status: 0 });
  }
}

/** A request as a shell command. */
export function curlOf(method, path, content, headers = { "Content-Type": "application/json" }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = [
    `curl -sS${method === "GET" ? "" : ` -X ${method}`} ${quoted(location.origin + path)}`,
    '-H "Authorization: Bearer $OPS_SERVE_TOKEN"',
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
  ];
  if (content?.name) parts.push(`--data-binary @${quoted(content.name)}`);
  else if (content) parts.push(`--data-raw ${quoted(content)}`);
  return parts.join(" \\\n  ");
}

/** Waits. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", resolve);
  });
}

export function bucketPath(id, rest = "") {
  return `/api/buckets/${encodeURIComponent(id)}${rest}`;
}

/** A path within a path. */
export function encoded(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

/** All items of a list. */
export async function all(path, most = 5_000) {
  const items = [];
  const mark = path.includes("?") ? "&" : "?";
  for (let next = path; next && items.length < most; ) {
    const { items: page, next_cursor: cursor } = await call("GET", next);
    items.push(...page);
    next = cursor && `${path}${mark}cursor=${encodeURIComponent(cursor)}`;
  }
  return items;
}

/** `otherwise` for 404. */
export async function unless(request, otherwise) {
  try {
    return await request;
  } catch (error) {
    if (error.status !== 404 && error.status !== 400) throw error;
    return otherwise;
  }
}

/** The newest runs of a kind. */
export async function runsOf(bucketId, kind, limit, status) {
  const query = queryOf({ kind, limit, status });
  return (await unless(call("GET", bucketPath(bucketId, `/runs?${query}`)), { items: [] })).items;
}

/** A query of what is given. */
export function queryOf(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => (value ?? "") !== ""));
}

/** The address of a view. */
export function link(bucketId, view = "", rest = [], query = {}) {
  const path = ["buckets", bucketId, view, ...rest].filter((part) => part !== "").map(encodeURIComponent);
  const search = queryOf(query);
  return `#/${path.join("/")}${search.size > 0 ? `?${search}` : ""}`;
}

/** The present address. */
export function address() {
  const [, path = "", search = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  const parts = path.split("/").filter(Boolean).map(decode);
  const [first, bucketId, view = "", ...rest] = parts;
  const known = first === undefined || (first === "buckets" && bucketId !== undefined);
  return { known, path, bucketId, view, rest, query: new URLSearchParams(search) };
}

/** Changes the query of the address. */
export function keepQuery(changes) {
  const { bucketId, view, rest, query } = address();
  const given = { ...Object.fromEntries(query), ...changes };
  history.replaceState(null, "", link(bucketId, view, rest, given));
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
