// Finds text and errors in the whole log.
import { button, el } from "../base/dom.js";
import { number } from "../base/text.js";
import { icon } from "../parts/state.js";

const FIND_AFTER_MS = 150;

/**
 * The field that finds text, with the number of matches and of the one that is shown.
 * @param {{ pane: import("./pane.js").LogPane, changed: () => void, leave: () => void }} around
 */
export function logFind({ pane, changed, leave }) {
  const state = { q: "", case: false, line: 0, at: 0, typing: 0, turn: 0 };
  /** Each step begins where the one before has led. */
  let steps = Promise.resolve();
  const about = { type: "search", placeholder: "Find", "aria-label": "Find in the log", maxlength: 200 };
  const field = el("input", { ...about, oninput: typed });
  const told = el("output.count", { role: "status" });
  const exact = button("Aa", toggleCase, { class: "small quiet", "aria-label": "Match case", "aria-pressed": "false" });
  const element = el(
    "form.find",
    { role: "search", onsubmit: submit, onkeydown: key },
    [icon("search"), field, told, exact],
    button("↑", () => step(-1), { class: "small quiet", "aria-label": "Match before" }),
    button("↓", () => step(1), { class: "small quiet", "aria-label": "Next match" }),
  );
  element.own = true;

  function typed() {
    clearTimeout(state.typing);
    state.typing = window.setTimeout(look, FIND_AFTER_MS);
  }

  function submit(event) {
    event.preventDefault();
    step(event.submitter ? 0 : 1);
  }

  function key(event) {
    if (event.target !== field || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") return step(event.shiftKey ? -1 : 1);
    if (field.value !== "") {
      field.value = "";
      look();
    }
    leave();
  }

  function toggleCase() {
    state.case = !state.case;
    exact.setAttribute("aria-pressed", String(state.case));
    look();
  }

  /** Takes what is typed; what goes on for an earlier turn is dropped. */
  function begin() {
    clearTimeout(state.typing);
    Object.assign(state, { typing: 0, q: field.value, line: 0, at: 0, turn: state.turn + 1 });
  }

  /** Looks for what is typed, from the first line in sight on. */
  async function look() {
    begin();
    const { turn } = state;
    changed();
    tell();
    const [first] = pane.view.seen();
    await pane.readMap();
    if (turn === state.turn && state.q !== "") await to(first - 1, 1);
  }

  /** The next match, or the one before. */
  function step(by) {
    steps = steps.then(() => stepNow(by)).catch((error) => pane.tell(error.message));
  }

  async function stepNow(by) {
    if (state.typing || field.value !== state.q) await look();
    else if (state.q !== "" && pane.map?.matches > 0) await to(state.line || pane.view.seen()[0], by);
  }

  async function to(line, by) {
    const turn = ++state.turn;
    const found = pane.map?.matches > 0 ? await pane.seek("matches", line, by) : undefined;
    if (turn !== state.turn || !found) return tell();
    const at = await placeOf(found.line, by);
    if (turn !== state.turn) return;
    Object.assign(state, { line: found.line, at });
    tell();
    await pane.view.go(found.line);
  }

  /** Which of all matches a line is: beside the one before, or counted in its part of the log. */
  async function placeOf(line, by) {
    const { matches } = pane.map;
    const beside = state.at + by;
    if (state.at > 0) return beside < 1 ? matches : beside > matches ? 1 : beside;
    return (await pane.countBefore(line)) + 1;
  }

  function tell() {
    const all = pane.map?.matches;
    if (state.q === "") told.textContent = "";
    else if (all === undefined || pane.isSearching) told.textContent = "Searching …";
    else if (all === 0) told.textContent = "No match";
    else told.textContent = state.at > 0 ? `${number(state.at)} of ${number(all)}` : number(all);
  }

  /** Looks for nothing more. */
  function clear() {
    field.value = "";
    begin();
    tell();
  }

  return { element, field, state, step, look, tell, clear };
}
