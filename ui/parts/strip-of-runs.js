import { svg } from "../base/dom.js";
import { duration, words } from "../base/format.js";
import { plain } from "../base/text.js";

const [WIDTH, GAP, UP, DOWN] = [5, 2, 14, 7];
const KINDS = { succeeded: "changed", failed: "failed", running: "running", cancelled: "cancelled" };

/**
 * The last runs as bars, the oldest first: up went well, down failed, low and grey was cancelled, an open one goes on. The
 * height is how long it took.
 * @param {{ kind: string, status: string, duration_ms: number, dry_run?: boolean }[]} recent
 */
export function runStrip(recent) {
  const longest = Math.max(1, ...recent.map(({ duration_ms: ms }) => Math.log1p(ms)));
  const bars = recent.map(({ kind, status, duration_ms: ms, dry_run: isDry }, index) => {
    const height = status === "cancelled" ? 3 : 4 + ((UP - 4) * Math.log1p(ms)) / longest;
    const isDown = status === "failed";
    const says = `${isDry ? "Dry run" : words(kind)}, ${status}, ${duration(ms)}`;
    const size = { x: index * (WIDTH + GAP), y: isDown ? UP : UP - height, width: WIDTH, height: isDown ? DOWN : height };
    return svg("rect", { class: KINDS[status], rx: 1, ...size }, svg("title", plain(says)));
  });
  const total = (word) => recent.filter(({ status }) => status === word).length;
  const told = Object.keys(KINDS).filter((word) => total(word) > 0);
  const label = `Last ${recent.length} runs: ${told.map((word) => `${total(word)} ${word}`).join(", ")}`;
  const [width, height] = [20 * (WIDTH + GAP), UP + DOWN];
  return svg("svg.strip", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, bars);
}
