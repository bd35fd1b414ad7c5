import { ApiError, onTotpRequired, request } from "./api.js";
import { tell } from "./dom.js";

const VERIFY = "/api/auth/totp/verify";
/** How long before its end a TOTP session is renewed: a minute, or a quarter of a short one. */
const AHEAD_MS = 60_000;

const form = document.getElementById("verify");
const field = document.getElementById("code");
const problem = document.getElementById("verify-error");

let asked = null;
let renewal;

/** Asks for a TOTP code whenever a request needs one, and shortly before the last one ends. */
export function startCodes() {
  onTotpRequired(askForCode);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    verify();
  });
}

/** Nobody is signed in any more: whoever waits for a code gets none. */
export function forgetCodes() {
  clearTimeout(renewal);
  asked?.reject(new ApiError(401, { error: "unauthorized", message: "Signed out" }));
  close();
}

/** Resolves once a code was verified; all who ask meanwhile wait for the same one. `token` for who has no session yet. */
function askForCode(token) {
  if (asked) return asked.promise;
  asked = { token, ...Promise.withResolvers() };
  tell(problem, "");
  form.hidden = false;
  field.focus();
  return asked.promise;
}

async function verify() {
  const code = field.value.trim();
  field.value = "";
  tell(problem, "");
  try {
    const { expires_at: end } = await request("POST", VERIFY, { token: asked.token, body: { code } });
    renewAt(Date.parse(end) - Date.now());
    asked?.resolve();
    close();
  } catch (error) {
    if (error.code === "unauthorized") return forgetCodes();
    tell(problem, error.code === "invalid_totp_code" ? "This code is not right." : error.message);
    field.focus();
  }
}

function renewAt(leftMs) {
  clearTimeout(renewal);
  // Who lets it pass is asked again by the next request.
  renewal = setTimeout(() => askForCode().catch(() => {}), leftMs - Math.min(AHEAD_MS, leftMs / 4));
}

function close() {
  asked = null;
  form.hidden = true;
}
