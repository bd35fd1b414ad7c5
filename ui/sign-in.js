import { call, request, session } from "./api.js";
import { el, tell } from "./dom.js";
import { ago } from "./format.js";

const SESSION = "/api/auth/session";
const AHEAD_MS = 60_000;

const { "sign-in": form, verify: codeForm } = document.forms;
const { code } = codeForm.elements;
const [about, problem] = ["session", "trouble"].map((id) => document.getElementById(id));
const ends = el("span.hint");

let signedIn = false;
let waiting = null;
let renewal;
let change = () => {};

/** Starts the session. */
export async function startSession({ onSignIn, onSignOut }) {
  change = (now, message = "") => {
    signedIn = now;
    form.hidden = now;
    about.hidden = !now;
    tell(problem, message);
    if (!now) forgetCodes();
    (now ? onSignIn : onSignOut)();
  };
  startCodes();
  session.end = () => signedIn && change(false, "Your session has ended. Sign in again.");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = form.token.value.trim();
    form.token.value = "";
    begin("POST", "This token is not right.", given);
  });
  document.getElementById("sign-out").addEventListener("click", signOut);
  await begin("GET", "");
}

async function begin(method, refusal, given) {
  tell(problem, "");
  try {
    await call(method, SESSION, { token: given });
    change(true);
  } catch (error) {
    change(false, error.status === 401 ? refusal : error.message);
    form.token.focus();
  }
}

async function signOut() {
  try {
    await request("DELETE", SESSION);
  } catch (error) {
    // It signs out without a code too.
    if (error.code !== "totp_required") return signedIn && tell(problem, `Not signed out: ${error.message}`);
  }
  change(false);
  form.token.focus();
}

/** Asks for codes when needed. */
export function startCodes() {
  session.askForCode = askForCode;
  codeForm.addEventListener("submit", (event) => {
    event.preventDefault();
    verify();
  });
  code.addEventListener("input", ({ inputType }) => {
    if (inputType === "insertFromPaste") codeForm.requestSubmit();
  });
  codeForm.append(ends);
}

function forgetCodes() {
  clearTimeout(renewal);
  waiting?.reject(new Error("Signed out"));
  close();
}

function askForCode(given, end) {
  if (waiting) return waiting.promise;
  waiting = { token: given, ...Promise.withResolvers() };
  tell(problem, "");
  ends.replaceChildren(...(end ? ["The session ends ", ago(end)] : []));
  codeForm.hidden = false;
  code.focus();
  return waiting.promise;
}

async function verify() {
  const body = { code: code.value.trim() };
  code.value = "";
  tell(problem, "");
  try {
    const { token } = waiting;
    const { expires_at: end } = await request("POST", "/api/auth/totp/verify", { token, body });
    const leftMs = Date.parse(end) - Date.now();
    clearTimeout(renewal);
    const again = () => askForCode(undefined, end).catch(() => {});
    renewal = setTimeout(again, leftMs - Math.min(AHEAD_MS, leftMs / 4));
    waiting?.resolve();
    close();
  } catch (error) {
    if (error.code === "unauthorized") return forgetCodes();
    tell(problem, error.code === "invalid_totp_code" ? "This code is not right." : error.message);
    code.focus();
  }
}

function close() {
  waiting = null;
  codeForm.hidden = true;
}
