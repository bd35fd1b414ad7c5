/** What a request ended with: `code` for the console, `message` for the person; `response` is all that the server said. */
export class ApiError extends Error {
  constructor(status, body, response) {
    super(body.message ?? `The server answered with status ${status}`);
    const { error: code = "unknown", run_id: runId, details } = body;
    Object.assign(this, { status, code, runId, details, response });
  }
}

let signedOut = () => {};
let askForCode = () => Promise.reject(new ApiError(403, { error: "totp_required" }));

/** Who wants to know that the session is over. */
export function onSignedOut(listener) {
  signedOut = listener;
}

/** Who asks for a TOTP code: called with the token of a request that had one, resolves once a code was verified. */
export function onTotpRequired(ask) {
  askForCode = ask;
}

/** Like {@link request}; where a TOTP code is needed, asks for one and tries once more. */
export async function call(method, path, options = {}) {
  try {
    return await request(method, path, options);
  } catch (error) {
    if (error.code !== "totp_required") throw error;
    await askForCode(options.token);
    return await request(method, path, options);
  }
}

/**
 * One request; answers its body, as JSON unless `as` says `text`, `blob` or `arrayBuffer`, or all of it for `response`.
 * The browser adds the session cookie. `token` is only used to sign in. A body is sent as JSON unless a header says
 * what it is. Throws ApiError; an aborted signal throws what fetch throws.
 */
export async function request(method, path, { body, token, signal, headers: own, as = "json" } = {}) {
  const headers = new Headers({ Accept: "application/json", ...own });
  if (method !== "GET") headers.set("X-Ops-CSRF", "1");
  if (token !== undefined) headers.set("Authorization", `Bearer ${token}`);
  const isRaw = headers.has("Content-Type") || body === undefined;
  if (!isRaw) headers.set("Content-Type", "application/json");
  const options = { method, headers, signal, body: isRaw ? body : JSON.stringify(body) };
  const response = await send(path, options);
  if (response.ok && as !== "json") return as === "response" ? response : await response[as]();
  const answer = await response
    .clone()
    .json()
    .catch(() => ({}));
  if (response.ok) return answer;
  if (answer.error === "unauthorized" && token === undefined) signedOut();
  throw new ApiError(response.status, answer, response);
}

async function send(path, options) {
  try {
    return await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, { error: "unreachable", message: "The server cannot be reached" });
  }
}

/** A request as a command for the shell, where the token is a variable; `content` is text or a file. */
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

/** Resolves after that time, or as soon as `signal` is aborted. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
    signal.addEventListener("abort", resolve);
  });
}

/** The paths of the API below a bucket. */
export function bucketPath(id, rest = "") {
  return `/api/buckets/${encodeURIComponent(id)}${rest}`;
}

/** A path of parts that may hold any character. */
export function encoded(...parts) {
  return parts.map((part) => part.split("/").map(encodeURIComponent).join("/")).join("/");
}

/** All items of a list, page after page, at most `most`. */
export async function all(path, most = 5_000) {
  const items = [];
  for (let cursor = ""; cursor !== null && items.length < most; ) {
    const mark = path.includes("?") ? "&" : "?";
    const answer = await call(
      "GET",
      cursor === "" ? path : `${path}${mark}cursor=${encodeURIComponent(cursor)}`,
    );
    items.push(...answer.items);
    cursor = answer.next_cursor ?? null;
  }
  return items;
}

/** What a request answers, or `otherwise` where the server says that there is no such thing. */
export async function unless(request, otherwise) {
  try {
    return await request;
  } catch (error) {
    if (error.status !== 404 && error.status !== 400) throw error;
    return otherwise;
  }
}

/** The newest runs of a kind, newest first. */
export async function runsOf(bucketId, kind, limit, status = "") {
  const query = new URLSearchParams({ kind, limit, ...(status !== "" && { status }) });
  return (await unless(call("GET", bucketPath(bucketId, `/runs?${query}`)), { items: [] })).items;
}
