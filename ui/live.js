import { request } from "./api.js";

const WAIT_S = 30;
const POLL_MS = 10_000;
const RETRY_MS = 2_000;
const STALE_MS = 5_000;

const badge = document.getElementById("live");

/**
 * Keeps the page up to date: `refresh` is called whenever a run anywhere begins or ends, and every ten seconds. Says in
 * the top bar whether that works, and since when not. Stops with `signal`.
 */
export async function followEvents(refresh, signal) {
  let since = Date.now();
  const tell = (word) => {
    if (badge.textContent === word) return;
    badge.textContent = word;
    badge.className = `live ${word.split(" ")[0]}`;
  };
  const works = () => {
    since = Date.now();
    tell("live");
  };
  const clock = setInterval(() => {
    if (!document.hidden) refresh().then(() => badge.textContent === "" && works());
  }, POLL_MS);
  signal.addEventListener("abort", () => {
    clearInterval(clock);
    tell("");
  });
  for (let after = ""; !signal.aborted; ) {
    try {
      const answer = await nextEvents(after, signal);
      works();
      if (answer === null) return;
      const news = answer.reset || answer.items?.length > 0 || answer.events?.length > 0;
      if (after !== "" && news) await refresh();
      after = answer.next ?? answer.next_cursor ?? answer.cursor ?? "";
      if (after === "") await pause(POLL_MS, signal);
    } catch {
      if (signal.aborted) return;
      const seconds = Math.round((Date.now() - since) / 1000);
      tell(Date.now() - since > STALE_MS ? `stale since ${seconds} s` : "reconnecting");
      await pause(RETRY_MS, signal);
    }
  }
}

/** null where the server has no events. */
async function nextEvents(after, signal) {
  const query = new URLSearchParams({ timeout: WAIT_S, ...(after !== "" && { after }) });
  try {
    return await request("GET", `/api/events?${query}`, { signal });
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()));
  });
}
