// Whether the server answers: told by a clock, so that a connection that has died in silence is noticed too.
import { get, pause, queryOf, session } from "./api.js";
import { button, el, patch } from "./dom.js";
import { clockTime } from "./text.js";

/** The server answers a question for changes after that long at the latest, and that much later the connection counts as slow. */
const [WAIT_S, SLACK_MS] = [5, 3_000];
/** Between two attempts to reach a server that gave no answer, and the time that each may take. */
const [RETRY_MS, ATTEMPT_MS] = [2_000, 2_500];
/** Without an answer for that long the page is stale. */
const STALE_MS = 10_000;

/** Follows the changes of all runs, calls `onChange` after each, and shows how the connection is. Ends with the signal. */
export async function followServer({ onChange, signal }) {
  const state = { heard: Date.now(), isLive: false };
  session.heard = () => (state.heard = Date.now());
  let tryNow = () => {};
  const draw = () => showConnection(state, () => tryNow());
  const clock = setInterval(draw, 500);
  signal.addEventListener("abort", () => {
    clearInterval(clock);
    // A server that refuses a session has answered: no banner says otherwise.
    draw();
  });
  for (const event of ["online", "focus"]) addEventListener(event, () => tryNow(), { signal });
  for (let after = ""; !signal.aborted; ) {
    const timeout = state.isLive ? WAIT_S : 0;
    const limitMs = state.isLive ? WAIT_S * 1000 + SLACK_MS : ATTEMPT_MS;
    try {
      const { items, next, reset } = await get(`/api/events?${queryOf({ timeout, after })}`, { signal, limitMs });
      const wasLive = state.isLive;
      Object.assign(state, { isLive: true, heard: Date.now() });
      after = next;
      draw();
      if (items.length > 0 || reset || !wasLive) onChange();
    } catch {
      state.isLive = false;
      const asked = Promise.withResolvers();
      tryNow = () => asked.resolve(undefined);
      if (!signal.aborted) await Promise.race([pause(RETRY_MS, signal), asked.promise]);
    }
  }
}

function showConnection({ heard, isLive }, tryNow) {
  const [badge, banner] = ["live", "banner"].map((id) => document.getElementById(id));
  const silentMs = Date.now() - heard;
  const isStale = silentMs > STALE_MS;
  const silence = `no answer for ${Math.floor(silentMs / 1000)} s`;
  const [kind, text] = isStale ? ["soon", silence] : isLive ? ["live", "live"] : ["late", "catching up"];
  if (badge.textContent !== text) patch(badge, el(`span.live.${kind}`, text));
  document.documentElement.classList.toggle("stale", isStale);
  banner.hidden = !isStale;
  if (!isStale) return;
  const says = `The server has not answered since ${clockTime(heard)}. What is shown is from then; it is asked again every 2 s.`;
  patch(banner, el("span", says), button("Try now", tryNow));
}
