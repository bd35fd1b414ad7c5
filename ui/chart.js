import { el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [200, 48];

/** A small chart of percentages over time; `points` are `{at, value}`, oldest first. What it shows is said in words too. */
export function chartOf(label, name, points) {
  const known = points.filter(({ value }) => Number.isFinite(value));
  const last = known.at(-1);
  const text = last === undefined ? "no reading" : `${Math.round(last.value)} %`;
  return el(
    "div",
    { class: "chart" },
    el("span", {}, `${name} `, el("b", {}, text)),
    svgOf(`${label}: ${describe(known)}`, known),
  );
}

function describe(points) {
  if (points.length === 0) return "no reading";
  const values = points.map(({ value }) => value);
  const most = Math.round(Math.max(...values));
  return `${points.length} readings, now ${Math.round(values.at(-1))} %, at most ${most} %`;
}

function svgOf(title, points) {
  const x = (index) => (points.length < 2 ? WIDTH : (index / (points.length - 1)) * WIDTH);
  const y = (value) => HEIGHT - 1 - (Math.min(100, Math.max(0, value)) / 100) * (HEIGHT - 2);
  const line = points.map(({ value }, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const shape = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const svg = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": title,
    preserveAspectRatio: "none",
  });
  svg.append(shape("line", { class: "half", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }));
  if (points.length > 0)
    svg.append(shape("polyline", { points: points.length === 1 ? `0,${y(points[0].value)} ${line}` : line }));
  return svg;
}
