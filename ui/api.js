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
 * One request; answers its body. The browser adds the session cookie. `token` is only used to sign in.
 * Throws ApiError; an aborted signal throws what fetch throws.
 */
export async function request(method, path, { body, token, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Ops-CSRF"] = "1";
  if (token !== undefined) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await send(path, { method, headers, signal, body: body && JSON.stringify(body) });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (answer.error === "unauthorized" && token === undefined) signedOut();
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
