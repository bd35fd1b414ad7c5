// A strip: how something was over time, as bars, with a sentence for those who cannot see them.
import { svg } from "../base/dom.js";
import { clockTime, count, plain } from "../base/text.js";
import { markOf } from "../parts/state.js";
import { percentText, RANGES, stripOf } from "./history.js";

/** Of a bar with its gap, and of a strip. */
const [PITCH, HEIGHT, LEAST_BAR] = [5, 18, 5];

/**
 * Bars from the past to now: pale where all was well, coloured from below for the share of the time that it was not, low
 * where nothing is known.
 * @param {string} name of what it is about
 * @param {Parameters<typeof stripOf>[0]} places
 * @param {keyof typeof RANGES} range
 */
export function strip(name, places, range) {
  const found = stripOf(places, range, Date.now());
  const width = PITCH * found.bars.length;
  const good = found.bars.map(({ isKnown }, index) => isKnown && column(index, 0, HEIGHT)).filter(Boolean);
  const unknown = found.bars.map(({ isKnown }, index) => !isKnown && column(index, HEIGHT - 2, 2)).filter(Boolean);
  const bad = found.bars.map(({ state, bad: share, from, to }, index) => {
    if (state === "") return null;
    const height = Math.max(LEAST_BAR, share * HEIGHT);
    const says = `${clockTime(from)} to ${clockTime(to)}: ${state.replaceAll("_", " ")} ${percentText(share)} of the time`;
    return svg("path", { class: markOf(state), d: column(index, HEIGHT - height, height) }, svg("title", plain(says)));
  });
  const spoken = { role: "img", "aria-label": `${plain(name)}, ${stripText(found, range)}` };
  return svg(
    "svg.bars",
    { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", ...spoken },
    svg("path.ok", { d: good.join("") }),
    svg("path.unknown", { d: unknown.join("") }),
    bad,
  );
}

function column(index, y, height) {
  return `M${index * PITCH} ${y}h${PITCH - 1}v${height}h-${PITCH - 1}z`;
}

/** `well 99.2 % of the last 7 days, 3 changes`. */
export function stripText({ good, changes }, range) {
  if (good === null) return "nothing is known";
  return `well ${percentText(good)} of the last ${RANGES[range].label}, ${changes === 0 ? "no change" : count(changes, "change")}`;
}
