// Who is signed in: the card of a new page, the question over a page whose session has ended, codes of an authenticator app,
// and the menu of the session (control-plane.md, Authentication). The token is held until the cookie is there, no longer.
import { call, request, session } from "../base/api.js";
import { alertPlace, button, el, patch } from "../base/dom.js";
import { has, isAdmin, person } from "../base/person.js";
import { ago, said, tell } from "../base/text.js";
import { item, openDialog, popupButton, toast, wayItem } from "../parts/dialog.js";
import { colours } from "../parts/form.js";
import { icon } from "../parts/state.js";

const SESSION = "/api/auth/session";
const VERIFY = "/api/auth/totp/verify";
/** So long before its end a code is asked for again; of a short session a quarter. */
const AHEAD_MS = 60_000;

const signing = {
  signedIn: false,
  /** The code that requests wait for: a promise with its functions. */
  wanted: null,
  renewal: 0,
  /** When the session and the last code end. */
  ends: { session: null, code: null },
  hears: { onSignIn() {}, onSignOut() {}, onEnd() {} },
};

/** Starts the session: by the cookie of an earlier one, else with the card. @param {typeof signing.hears} hears */
export async function startSession(hears) {
  signing.hears = hears;
  startCodes();
  session.end = ended;
  const start = async () => begin(await request("GET", SESSION));
  try {
    await start();
  } catch (error) {
    if (error.code === "totp_required") await session.askForCode().then(start, () => showCard());
    else showCard(error.status === 401 ? "" : error.message);
  }
}

/** Asks for a code whenever a request needs one; all requests wait for the same. */
export function startCodes() {
  session.askForCode = () => {
    if (signing.wanted) return signing.wanted.promise;
    signing.wanted = Promise.withResolvers();
    const done = (ends) => {
      verified(ends);
      dialog.close();
    };
    const dialog = over(codeForm({ verified: done }), () => signing.wanted?.reject(new Error("No code was entered")));
    return signing.wanted.promise.finally(() => (signing.wanted = null));
  };
}

function begin({ expires_at: ends, totp, totp_expires_at: codeEnds, name, role, buckets }) {
  Object.assign(person, { name, role, buckets });
  signing.signedIn = true;
  session.number += 1;
  signing.ends.session = ends;
  if (codeEnds) verified(codeEnds);
  drawMenu(totp.enabled);
  signing.hears.onSignIn();
}

function drawMenu(withCodes) {
  const content = () => [
    el(
      "div.pad",
      el("p.small", "Signed in as ", el("b", said(person.name)), ` (${person.role})`),
      !has("admin") && el("p.small", "Orders that need a greater role are hidden."),
      signing.ends.session && el("p.small", "The session ends ", ago(signing.ends.session)),
      withCodes && signing.ends.code && el("p.small", "The code holds until ", ago(signing.ends.code)),
      colours(),
    ),
    el("hr"),
    wayItem(isAdmin() ? "People and sessions" : "Sessions", "#/people"),
    wayItem("Audit", "#/audit"),
    item("API reference", () => openGuarded("/docs/")),
    item("Sign out", signOut),
  ];
  const menu = popupButton(icon("person"), content, { menu: true, "aria-label": "Session" });
  menu.own = true;
  patch(document.getElementById("who"), menu);
}

function showCard(message = "") {
  signing.hears.onSignOut();
  const place = document.getElementById("view");
  const image = el("img", { src: "/icon.svg", role: "presentation", width: 20, height: 20 });
  const brand = el("p.brand-line", image, el("b", "ops"), el("span.small", location.host));
  place.replaceChildren(el("div.card.panel", brand, signInForm(begin, message)));
  place.querySelector("input").focus();
  // What was typed stays; the form of a code gives way.
  const toToken = () => (document.getElementById("token") ? place.querySelector("input").focus() : showCard());
  patch(document.getElementById("who"), button("API token", toToken));
}

/** The session has ended under a page: what is shown and typed stays. */
function ended() {
  if (!signing.signedIn || signing.wanted) return;
  signing.signedIn = false;
  signing.hears.onEnd();
  document.getElementById("live").replaceChildren(el("span.live.failed", "signed out"));
  const form = signInForm((answer) => {
    dialog.close();
    begin(answer);
  }, "Your session has ended. What is on this page stays.");
  const dialog = over(form, () => signing.signedIn || showCard());
}

/** A dialog over the page, without a question. */
function over(form, onClose) {
  return openDialog({ class: "over", "aria-label": "Sign in" }, form, onClose);
}

/** Token first, then the code in the same place, where the server wants one. */
function signInForm(done, message) {
  const problem = alertPlace();
  const token = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const field = el("label.field", el("span", "API token"), token);
  const form = el("form", { autocomplete: "off" }, el("h1", "Sign in"), field, problem, el("button.primary", "Sign in"));
  tell(problem, message);
  onSent(form, token, problem, async (given) => {
    try {
      done(await request("POST", SESSION, { token: given }));
    } catch (error) {
      if (error.code === "totp_required") return showCode(given);
      tell(problem, error.status === 401 ? "This token is not right." : error.message);
      token.focus();
    }
  });
  function showCode(given) {
    const again = () => form.parentElement.replaceChild(signInForm(done, ""), code);
    const verifiedHere = async () => done(await request("POST", SESSION, { token: given }));
    const code = codeForm({ token: given, verified: verifiedHere, foot: button("Start again", again, { class: "plain" }) });
    form.replaceWith(code);
    code.querySelector("input").focus();
  }
  return form;
}

/** A field for six digits; a paste or the sixth digit sends. */
function codeForm(/** @type {any} */ { token, verified: done, foot, isSmall }) {
  const problem = alertPlace();
  const label = "Code of your authenticator app";
  const oninput = () => /^\s*\d{6}\s*$/.test(field.value) && form.requestSubmit();
  const about = { inputmode: "numeric", autocomplete: "one-time-code", maxlength: 8, required: true };
  const field = el("input.code-field", { ...about, oninput, "aria-label": label });
  const whole = [el("h1", "Code from your authenticator"), el("label.field", el("span", label), field), problem];
  const form = el("form", { autocomplete: "off" }, isSmall ? [field, problem] : [whole, el("button.primary", "Verify"), foot]);
  onSent(form, field, problem, async (code) => {
    try {
      const { expires_at: ends } = await request("POST", VERIFY, { token, body: { code } });
      await done(ends);
    } catch (error) {
      tell(problem, error.code === "invalid_totp_code" ? "This code is not right." : error.message);
      if (!isSmall) field.focus();
    }
  });
  return form;
}

/** Takes what was typed out of the field when the form is sent. */
function onSent(form, field, problem, send) {
  form.onsubmit = (event) => {
    event.preventDefault();
    const given = field.value.trim();
    field.value = "";
    tell(problem, "");
    return send(given);
  };
}

/** A code was right: whoever waits goes on, and a new one is asked for in time. */
function verified(ends) {
  signing.ends.code = ends;
  session.number += 1;
  clearTimeout(signing.renewal);
  const left = Date.parse(ends) - Date.now();
  signing.renewal = setTimeout(askAhead, left - Math.min(AHEAD_MS, left / 4), ends);
  signing.wanted?.resolve();
}

/** Asks for the next code in a toast, which takes no focus. */
function askAhead(ends) {
  const done = (next) => {
    told.close();
    verified(next);
  };
  const form = codeForm({ isSmall: true, verified: done });
  const told = toast(["The code's session ends ", ago(ends), ". What you typed stays."], { controls: [form] });
  setTimeout(told.close, Math.max(0, Date.parse(ends) - Date.now()));
}

async function signOut() {
  // Requests that are refused from now on ask nobody to sign in again.
  signing.signedIn = false;
  try {
    await request("DELETE", SESSION);
  } catch (error) {
    // The server signs out without a code too.
    signing.signedIn = error.code !== "totp_required";
    if (signing.signedIn) return void toast(`Not signed out: ${error.message}`, { error: true });
  }
  clearTimeout(signing.renewal);
  showCard();
}

/** Opens a page that the server guards: asks for a code first, where one is needed. */
export async function openGuarded(path) {
  await call("GET", SESSION).catch(() => {});
  location.assign(path);
}
