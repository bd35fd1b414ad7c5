import { pause, request } from "./api.js";

const WAIT_S = 30;
const POLL_MS = 10_000;
const RETRY_MS = 2_000;
/** No answer for longer than a long-poll may last. */
const STALE_S = 35;

const badge = document.getElementById("live");

/**
 * Keeps the page up to date: `refresh` is called whenever a run anywhere begins or ends, and every ten seconds for what
 * is no run. Says in the top bar whether that works, and since when not. Stops with `signal`.
 */
export async function followEvents(refresh, signal) {
  let heard = Date.now();
  const clock = setInterval(refresh, POLL_MS);
  signal.addEventListener("abort", () => clearInterval(clock));
  for (let after = ""; !signal.aborted; ) {
    try {
      const { items, next, reset } = await nextEvents(after, signal);
      [heard, after] = [Date.now(), next];
      tell("live");
      if (items.length > 0 || reset) await refresh();
    } catch {
      const seconds = Math.round((Date.now() - heard) / 1000);
      tell(seconds > STALE_S ? `stale since ${seconds} s` : "reconnecting");
      await pause(RETRY_MS, signal);
    }
  }
  tell("");
}

function nextEvents(after, signal) {
  const query = new URLSearchParams({ timeout: WAIT_S, ...(after !== "" && { after }) });
  return request("GET", `/api/events?${query}`, { signal });
}

function tell(text) {
  if (badge.textContent === text) return;
  badge.textContent = text;
  badge.className = `live ${text.split(" ")[0]}`;
}
