/** What a request ended with: `code` for the console, `message` for the person. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.message ?? `The server answered with status ${status}`);
    this.status = status;
    this.code = body.error ?? "unknown";
    this.runId = body.run_id ?? null;
  }
}

let signedOut = () => {};

/** Who wants to know that the session is over. */
export function onSignedOut(listener) {
  signedOut = listener;
}

/**
 * One request; answers its body. The browser adds the session cookie. `token` is only used to sign in.
 * Throws ApiError; an aborted signal throws what fetch throws.
 */
export async function call(method, path, { body, token, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Ops-CSRF"] = "1";
  if (token !== undefined) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await send(path, { method, headers, signal, body: body && JSON.stringify(body) });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (response.status === 401 && token === undefined) signedOut();
  throw new ApiError(response.status, answer);
}

async function send(path, options) {
  try {
    return await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, { error: "unreachable", message: "The server cannot be reached" });
  }
}

/** The paths of the API below a bucket. */
export function bucketPath(id, rest = "") {
  return `/api/buckets/${encodeURIComponent(id)}${rest}`;
}
