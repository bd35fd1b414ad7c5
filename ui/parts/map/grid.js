// The map as a grid of elements: built anew when its rows or columns change, else only painted. Its rows are made here, too.
import { button, el, patch } from "../../base/dom.js";
import { count, joined, number, plain, said } from "../../base/text.js";
import { mark } from "../state.js";
import { bandsOf, cornerOf, cutNames, isWell, lettersIn, STATES, tally, total } from "./model.js";

/** More workers stand in cells together; on a phone all do. */
const [MOST_WORKERS, MOST_COLUMNS, ON_PHONE] = [60, 28, 6];
/** More rows fold where nothing is the matter with them; more cells are never drawn. */
const [MOST_ROWS, ROWS_ON_PHONE, MOST_CELLS] = [40, 8, 2_400];
/** Cells with these say how many they are, and rows with these have a mark. */
const [COUNTED, MARKED] = ["urx", "frwx"];
/** Heads that are longer are turned, and cut there. */
const [UPRIGHT, LONGEST] = [3, 8];
/** So few have room for any head. */
const FEW_CELLS = 6;
const BAND_GAP = "8px";
const MOVES = {
  ArrowRight: ([row, column]) => [row, column + 1],
  ArrowLeft: ([row, column]) => [row, column - 1],
  ArrowDown: ([row, column]) => [row + 1, column],
  ArrowUp: ([row, column]) => [row - 1, column],
  Home: ([row]) => [row, 0],
  End: ([row]) => [row, Infinity],
};

/**
 * One row: a job, or several that are folded. Each cell is a tally.
 * @typedef {{ key: string, head: any, cells: any[], spoken: (column: number) => string, open: (column: number) => void }} Row
 */

/** A grid with a label: one stop for Tab, cells by arrows; a click, Enter or Space on a cell calls the row's `open`. */
export function gridOf(label) {
  const element = el("div.grid", { role: "grid", "aria-label": label });
  element.own = true;
  const look = { shape: "", at: [0, 1], rows: /** @type {Row[]} */ ([]), lines: /** @type {any[][]} */ ([]), heads: [] };

  function show({ bands, corner, rows, isMany }) {
    const shape = JSON.stringify([bands, corner, isMany, rows.map(({ key }) => key)]);
    look.rows = rows;
    if (shape !== look.shape) build(element, look, { bands, corner, isMany });
    look.shape = shape;
    for (const [index, row] of rows.entries()) paintRow(look.lines[index], row, isMany);
    if (rows.length > 0) stopAt(look, look.at);
    for (const [column, head] of look.heads.entries()) {
      const { f, u } = total(rows.map(({ cells }) => cells[column]));
      head.classList.toggle("trouble", Boolean(f || u));
    }
  }

  /** @param {number[]} place */
  function openAt([row, column]) {
    if (column > 0) look.rows[row].open(column - 1);
  }

  element.onkeydown = (event) => {
    const place = cellPlace(look, event.target);
    if (!place || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const isOpening = (event.key === "Enter" || event.key === " ") && place[1] > 0;
    if (MOVES[event.key]) focusOn(look, MOVES[event.key](place));
    else if (isOpening) openAt(place);
    else return;
    event.preventDefault();
  };
  element.onclick = ({ target }) => {
    const place = cellPlace(look, target);
    if (!place) return;
    stopAt(look, place);
    openAt(place);
  };
  element.addEventListener("focusin", ({ target }) => {
    const place = cellPlace(look, target);
    if (place) stopAt(look, place);
  });
  element.addEventListener("mouseover", ({ target }) => {
    const cell = /** @type {HTMLElement} */ (target);
    if (cell.role === "gridcell") cell.title = cell.ariaLabel;
  });
  return { element, show, focus: () => focusOn(look, look.at) };
}

function cellPlace({ lines }, target) {
  const cell = target.closest?.("[role=gridcell], [role=rowheader]");
  const row = lines.findIndex((line) => line.includes(cell));
  return row < 0 ? null : [row, lines[row].indexOf(cell)];
}

/** What takes the focus at a place: in the head of a row its link or button. @param {any} look @param {number[]} place */
function stopOf({ lines }, [row, column]) {
  const cell = lines[row]?.[column];
  return cell?.querySelector("a, button") ?? cell;
}

/** Tab stops once in the grid: where it was last. @param {any} look @param {number[]} place */
function stopAt(look, place) {
  const before = stopOf(look, look.at);
  if (before) before.tabIndex = -1;
  look.at = place;
  stopOf(look, place).tabIndex = 0;
}

/** The place of the grid that is next to a place. @param {any} look @param {number[]} place */
function inside({ lines }, [row, column]) {
  const within = (at, size) => Math.min(Math.max(0, at), size - 1);
  const nearest = within(row, lines.length);
  return [nearest, within(column, lines[nearest]?.length ?? 1)];
}

/** @param {any} look @param {number[]} place */
function focusOn(look, place) {
  stopOf(look, inside(look, place))?.focus();
}

function build(element, look, { bands, corner, isMany }) {
  const hadFocus = element.contains(document.activeElement);
  const columns = bands.flatMap((band) => band.columns);
  const tracks = bands.map((band) => `repeat(${band.columns.length}, minmax(${isMany ? "24px" : "10px"}, 1fr))`);
  element.classList.toggle("many", isMany);
  element.style.gridTemplateColumns = `var(--names) ${tracks.join(` ${BAND_GAP} `)}`;
  const most = isMany || columns.length <= FEW_CELLS ? "88px" : "34px";
  element.style.maxWidth = `calc(var(--names) + ${columns.length} * ${most} + ${bands.length} * 10px)`;
  element.style.setProperty("--rows", String(look.rows.length));
  const isTurned = columns.length > FEW_CELLS && columns.some((column) => column.label.length > UPRIGHT + (isMany ? 2 : 0));
  look.heads = columns.map((column) => headCell(column.label, isTurned));
  const cellOf = () => el("div.cell", { role: "gridcell", tabindex: -1 });
  look.lines = look.rows.map(() => [el("div.name", { role: "rowheader" }), ...columns.map(cellOf)]);
  const placed = bandPlaces(bands);
  for (const { first, track } of placed)
    for (const one of [look.heads[first], ...look.lines.map((line) => line[first + 1])])
      one.style.gridColumnStart = String(track);
  const headRow = (name, ...cells) =>
    el("div", { role: name === "heads" || bands.some(({ label }) => label) ? "row" : "presentation", class: name }, cells);
  element.replaceChildren(
    headRow("bands", el("div", { role: "presentation" }), placed.map(bandOf)),
    headRow("heads", el("div.corner", { role: "presentation", title: plain(corner) }, plain(corner)), look.heads),
    ...look.lines.map((line) => el("div", { role: "row" }, line)),
  );
  look.at = inside(look, look.at);
  if (hadFocus) focusOn(look, look.at);
}

function headCell(label, isTurned) {
  const title = plain(label);
  const about = { role: "columnheader", class: isTurned && "turned", title };
  return el("div.head-of", about, isTurned ? title.slice(0, LONGEST) : title);
}

/** Bands with their first column and its track; between two bands is a gap. */
function bandPlaces(bands) {
  let [first, track] = [0, 2];
  return bands.map(({ columns, ...band }) => {
    const place = { ...band, first, track, span: columns.length };
    first += columns.length;
    track += columns.length + 1;
    return place;
  });
}

function bandOf({ label, size, track, span }) {
  const head = el("div.band", { role: label ? "columnheader" : "presentation" }, label && `${plain(label)} · ${number(size)}`);
  head.style.gridColumn = `${track} / span ${span}`;
  return head;
}

/** @param {any[]} line @param {Row} row @param {boolean} isMany */
function paintRow([head, ...cells], row, isMany) {
  patch(head, row.head);
  for (const [column, cell] of cells.entries()) paint(cell, row.cells[column], row.spoken(column), isMany);
}

function paint(cell, counts, spoken, isMany) {
  if (cell.ariaLabel === spoken) return;
  cell.ariaLabel = spoken;
  const [letter] = lettersIn(counts);
  cell.className = ["cell", STATES[letter] ?? "none", counts.hand > 0 && "hand"].filter(Boolean).join(" ");
  if (!isMany) return;
  const { hand: _, f: failed = 0, ...others } = counts;
  const all = Object.values(others).reduce((sum, many) => sum + many, failed);
  const told = COUNTED.includes(letter) ? number(counts[letter]) : "";
  cell.textContent = failed > 0 ? `× ${number(failed)}` : told;
  cell.style.setProperty("--share", `${(100 * failed) / Math.max(1, all)}%`);
}

/** The head of a row: its mark where it has one, and its link. */
function rowHead(counts, link) {
  const [letter] = lettersIn({ ...counts, u: 0 });
  return [MARKED.includes(letter) && mark(STATES[letter]), link];
}

/**
 * The rows and columns of the grid.
 * @param {any} page @param {any} look @param {boolean} isPhone
 * @param {{ sinceOf: any, open: (what: any) => void, draw: () => void }} acts
 */
export function modelOf(page, look, isPhone, acts) {
  const { workers } = look.map;
  const isMany = isPhone || workers.length > MOST_WORKERS;
  const [most, limit] = isPhone ? [ON_PHONE, ROWS_ON_PHONE] : [MOST_COLUMNS, MOST_ROWS];
  const bands = bandsOf(workers, look.by, isMany ? most : undefined);
  const columns = bands.flatMap(({ label: band, columns }) =>
    columns.map(({ label, of }) => {
      const [worker] = of.length === 1 ? of.map((at) => workers[at].worker) : [];
      return { of, worker, name: worker ?? [band, label].filter(Boolean).join(" ") };
    }),
  );
  const isWhole = look.jobs.length <= limit;
  const { well = [], others = [] } = Object.groupBy(look.jobs, (one) => (!isWhole && isWell(one) ? "well" : "others"));
  const wanted = look.isUnfolded ? look.jobs : others;
  const room = Math.floor(MOST_CELLS / Math.max(1, columns.length));
  const rows = wanted.slice(0, room).map((job) => jobRowOf(page, job, columns, acts));
  const left = wanted.length - rows.length;
  if (well.length > 0) rows.push(groupFold(look, well, columns, acts));
  if (left > 0) rows.push(moreOf(page, left, columns));
  return { bands, corner: isMany ? "" : cornerOf(cutNames(workers.map(({ worker }) => worker))), rows, isMany };
}

function talliesOf(cells, columns) {
  return columns.map(({ of }) => tally(of.map((at) => cells[at])));
}

function jobRowOf(page, { job, cells, counts }, columns, { sinceOf, open }) {
  const tallies = talliesOf(cells, columns);
  const spoken = (column) => {
    const { worker, name } = columns[column];
    const begun = worker && sinceOf(job, worker);
    return joined(`${plain(job)} on ${plain(name)}`, wordsOf(tallies[column], worker), begun && `since ${begun}`);
  };
  const link = el("a", { href: page.link("jobs", [job]), tabindex: -1, title: plain(job) }, said(job));
  return { key: job, head: rowHead(counts, link), cells: tallies, spoken, open: (column) => open({ job, ...columns[column] }) };
}

/** What a tally says; of one worker without numbers. */
function wordsOf(counts, worker) {
  const states = lettersIn(counts).map((letter) => (worker ? STATES[letter] : `${number(counts[letter])} ${STATES[letter]}`));
  return joined(...states, counts.hand > 0 && "changed by hand") || "not here";
}

function groupFold(look, well, columns, { draw }) {
  const open = () => {
    look.isUnfolded = !look.isUnfolded;
    draw();
  };
  const all = well.map(({ cells }) => talliesOf(cells, columns));
  const cells = columns.map((_, column) => total(all.map((tallies) => tallies[column])));
  const name = count(well.length, "job");
  const attributes = { class: "plain", tabindex: -1, "aria-expanded": String(look.isUnfolded) };
  const head = button(`${look.isUnfolded ? "▾" : "▸"} ${name} ok`, open, attributes);
  return { key: "well", head, cells, spoken: (column) => `${name}, ${wordsOf(cells[column])}`, open };
}

function moreOf(page, left, columns) {
  const href = page.link("jobs");
  const head = el("a", { href, tabindex: -1 }, count(left, "more job"));
  const open = () => (location.hash = href);
  return { key: "more", head, cells: columns.map(() => ({ hand: 0 })), spoken: () => "in the list of jobs", open };
}
