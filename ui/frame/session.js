import { call, request, session } from "../base/api.js";
import { alertPlace, el, patch, tell } from "../base/dom.js";
import { ago } from "../base/format.js";
import { item, opener } from "../parts/dialog.js";
import { icon } from "../parts/state.js";
import { colours, showKeys } from "./keys.js";

const SESSION = "/api/auth/session";
const [main, who] = ["view", "who"].map((id) => document.getElementById(id));

const state = { signedIn: false, waiting: null, renewal: 0, ends: null, change: (_now, _message) => {} };

/** Starts the session: signs in by the cookie of an earlier session, or shows the card. */
export async function startSession({ onSignIn, onSignOut }) {
  state.change = (now, message = "") => {
    state.signedIn = now;
    if (now) {
      drawMenu();
      return onSignIn();
    }
    forgetCodes();
    onSignOut();
    showCard(message);
  };
  session.askForCode = askForCode;
  session.end = () => state.signedIn && state.change(false, "Your session has ended. Sign in again.");
  await begin("GET", "");
}

function drawMenu() {
  const content = () => [
    state.ends && el("p.pad", "The session ends ", ago(state.ends)),
    el("div.pad", colours()),
    item("Keys", showKeys),
    el("hr"),
    item("Sign out", signOut),
  ];
  patch(who, opener(icon("person"), content, { menu: true, "aria-label": "Session" }));
}

function showCard(message) {
  const problem = alertPlace();
  const token = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const form = el(
    "form.card.panel",
    el("h1", "ops"),
    el("label.field", el("span", "API token"), token),
    problem,
    el("button.primary", "Sign in"),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    const given = token.value.trim();
    token.value = "";
    begin("POST", "This token is not right.", given);
  };
  tell(problem, message);
  main.replaceChildren(form);
  token.focus();
}

async function begin(method, refusal, given) {
  try {
    const { expires_at: ends } = await call(method, SESSION, { token: given });
    state.ends = ends;
    state.change(true);
  } catch (error) {
    state.change(false, error.status === 401 ? refusal : error.message);
  }
}

async function signOut() {
  try {
    await request("DELETE", SESSION);
  } catch (error) {
    // The server signs out without a code too.
    if (error.code !== "totp_required") return;
  }
  state.change(false);
}

function forgetCodes() {
  clearTimeout(state.renewal);
  state.waiting?.reject(new Error("Signed out"));
  state.waiting = null;
}

async function askForCode(_token) {
  throw new Error("not yet");
}
