import { link } from "./address.js";
import { bucketPath, call } from "./api.js";
import { ask } from "./dialog.js";
import { alertPlace, el, tell } from "./dom.js";

const controls = new Set();
let blockedBucket = null;
let reason = "";
let started = () => {};

/** Who wants to know of every run that is started here: its bucket and its id. */
export function onStarted(listener) {
  started = listener;
}

/** Starts of this bucket wait, for this reason; null for none. Other buckets are free (control-plane.md, UI). */
export function blockStarts(bucketId, why = "") {
  [blockedBucket, reason] = [bucketId, why];
  for (const control of controls) control.show();
}

/**
 * A button that starts a run. `order` answers `{path, body, ask?}`, or throws an Error that says what is missing; with
 * `ask` the person is asked first. What goes wrong is said beside the button. With `form` the form starts it.
 */
export function startButton(bucketId, label, order, { primary = false, danger = false, form } = {}) {
  const problem = alertPlace();
  const style = danger ? "danger" : primary ? "primary" : null;
  const trigger = el("button", { type: form ? "submit" : "button", class: style }, label);
  let busy = false;
  const element = el("div", { class: "start" }, trigger, problem);
  const control = {
    show() {
      if (!trigger.isConnected && control.seen) return controls.delete(control);
      control.seen ||= trigger.isConnected;
      const blocked = blockedBucket === bucketId;
      trigger.disabled = busy || blocked;
      trigger.title = blocked ? reason : "";
      return true;
    },
  };
  controls.add(control);

  async function start() {
    if (trigger.disabled) return;
    busy = true;
    control.show();
    tell(problem, "");
    try {
      const { path, body = {}, ask: question } = await order();
      if (!question || (await ask({ action: label.replace(" …", ""), danger, ...question })))
        await send(path, body);
    } catch (error) {
      tell(problem, `Cannot start: ${error.message}`);
      if (error.runId) problem.append(" ", runLink(bucketId, error.runId, "Show that run"));
    } finally {
      busy = false;
      control.show();
    }
  }

  async function send(path, body) {
    const { run_id: run } = await call("POST", bucketPath(bucketId, path), { body });
    started(bucketId, run);
  }
  if (form)
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      start();
    });
  else trigger.addEventListener("click", start);
  control.show();
  return element;
}

/** A link to a run. */
export function runLink(bucketId, runId, ...text) {
  return el("a", { href: link(bucketId, "runs", [runId]) }, ...text);
}
