import { el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [200, 48];

/** A small chart of percentages, oldest first; what it shows is said in words too. */
export function chartOf(label, name, values) {
  const known = values.filter(Number.isFinite);
  const now = known.length === 0 ? "no reading" : `${Math.round(known.at(-1))} %`;
  const more =
    known.length === 0 ? "" : `, at most ${Math.round(Math.max(...known))} % in ${known.length} readings`;
  const title = `${label}: ${now}${more}`;
  return el("div", { class: "chart" }, el("span", {}, `${name} `, el("b", {}, now)), svgOf(title, known));
}

function svgOf(title, values) {
  const last = Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 1 - (Math.min(100, Math.max(0, value)) / 100) * (HEIGHT - 2)).toFixed(1);
  const points = values.map((value, index) => `${((index / last) * WIDTH).toFixed(1)},${y(value)}`);
  if (values.length === 1) points.push(`${WIDTH},${y(values[0])}`);
  const svg = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": title,
    preserveAspectRatio: "none",
  });
  svg.append(
    shape("line", { x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
    shape("polyline", { points: points.join(" ") }),
  );
  return svg;
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
