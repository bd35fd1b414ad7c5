import { call, onSignedOut, request } from "./api.js";
import { forgetCodes, startCodes } from "./code.js";
import { tell } from "./dom.js";

const SESSION = "/api/auth/session";
const ENDED = "Your session has ended. Sign in again.";

const form = document.getElementById("sign-in");
const field = document.getElementById("token");
const problem = document.getElementById("sign-in-error");
const signOutButton = document.getElementById("sign-out");
const session = document.getElementById("session");

let signedIn = false;

/**
 * Shows the right control in the top bar and goes on with the session that the browser has, if any.
 * The token is exchanged for a cookie that no script can read, and kept nowhere.
 */
export async function startSession({ onSignIn, onSignOut }) {
  const change = (now, message = "") => {
    signedIn = now;
    form.hidden = now;
    session.hidden = !now;
    tell(problem, message);
    if (!now) forgetCodes();
    if (now) onSignIn();
    else onSignOut();
  };
  startCodes();
  onSignedOut(() => signedIn && change(false, ENDED));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(change);
  });
  signOutButton.addEventListener("click", () => signOut(change));
  await resume(change);
}

async function resume(change) {
  try {
    await call("GET", SESSION);
    change(true);
  } catch (error) {
    change(false, error.status === 401 ? "" : error.message);
    field.focus();
  }
}

async function signIn(change) {
  const token = field.value.trim();
  field.value = "";
  tell(problem, "");
  try {
    await call("POST", SESSION, { token });
    change(true);
  } catch (error) {
    tell(problem, error.status === 401 ? "This token is not right." : error.message);
    field.focus();
  }
}

async function signOut(change) {
  try {
    await request("DELETE", SESSION).catch(ignoreTotp);
    change(false);
    field.focus();
  } catch (error) {
    if (signedIn) tell(problem, `Not signed out: ${error.message}`);
  }
}

/** The server signs out without a code too; it only says that one was missing. */
function ignoreTotp(error) {
  if (error.code !== "totp_required") throw error;
}
