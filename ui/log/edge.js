// The map of the log along its edge: errors, matches and what is in sight.
import { patch, svg } from "../base/dom.js";
import { count } from "../base/text.js";

/** @param {(line: number) => void} go */
export function logEdge(go) {
  const element = svg("svg.edge", { viewBox: "0 0 60 160", preserveAspectRatio: "none", role: "img" });
  element.own = true;
  let total = 0;
  element.addEventListener("click", (/** @type {any} */ event) => {
    const { top, height } = element.getBoundingClientRect();
    go(Math.max(1, Math.ceil(((event.clientY - top) / height) * total)));
  });
  const stripe = (name, y, height = 1, attributes = {}) => svg(`rect.${name}`, { x: 0, width: 60, y, height, ...attributes });

  /**
   * @param {{ buckets: { errors: number, matches: number }[], errors: number, matches: number } | null} map
   * @param {number} lines @param {number[]} seen the first and the last line in sight
   */
  function draw(map, lines, [first, last]) {
    total = lines;
    const buckets = map?.buckets ?? [];
    const step = 160 / Math.max(1, buckets.length);
    const of = (name, attributes) =>
      buckets.map((bucket, index) => bucket[name] > 0 && stripe(name, index * step, step, attributes));
    const seen = 160 / Math.max(1, total);
    const frame = stripe("frame", (first - 1) * seen, Math.max(3, (last - first + 1) * seen));
    element.ariaLabel = `Map of the log: ${count(map?.errors ?? 0, "error")}, ${count(map?.matches ?? 0, "match")}`;
    patch(element, of("errors"), of("matches", { x: 50, width: 10 }), total > 0 && frame);
  }
  return { element, draw };
}
