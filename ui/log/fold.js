/** From so many equal neighbours on, all but the first are one row. */
const LEAST = 3;

/**
 * A row of the log: a line, or a fold of the lines from `line` to `last`, `count` of which match the filter.
 * @typedef {import("./source.js").Line & { last: number, count: number, fold?: string, workers?: Set<string> }} Row
 */

/** Lines as rows. @param {import("./source.js").Line[]} lines @returns {Row[]} */
export function rowsOf(lines) {
  return lines.map((line) => ({ ...line, last: line.line, count: 1 }));
}

/**
 * Rows with equal neighbours as one: the same text on other workers, and with `places` all lines of one place. Errors and
 * what a person has opened are left alone. The first of equal lines stays.
 * @param {Row[]} rows @param {{ equal: boolean, places: boolean, isOpen: (row: Row) => boolean }} how
 * @returns {Row[]}
 */
export function folded(rows, how) {
  const result = [];
  for (let at = 0; at < rows.length; ) {
    const head = rows[at];
    const key = keyOf(head, how);
    let end = at + 1;
    while (key !== "" && end < rows.length && keyOf(rows[end], how) === key) end++;
    const rest = head.fold ? rows.slice(at, end) : rows.slice(at + 1, end);
    if (!head.fold) result.push(head);
    const count = rest.reduce((sum, row) => sum + row.count, 0);
    if (count >= LEAST - 1) result.push(foldOf(rest, count, key));
    else result.push(...rest);
    at = end;
  }
  return result;
}

/** What rows that fold into one have in common; empty where a row is not to be folded. */
function keyOf(row, { equal, places, isOpen }) {
  if (row.fold) return row.fold;
  const { text, job, worker, stream, error } = row;
  if (error || worker === null || isOpen(row)) return "";
  if (places) return JSON.stringify([job, worker, stream]);
  return equal ? JSON.stringify([job, stream, text]) : "";
}

/** @returns {Row} */
function foldOf(rows, count, fold) {
  const workers = new Set(rows.flatMap((row) => (row.workers ? [...row.workers] : [row.worker])));
  return { ...rows[0], last: rows.at(-1).last, count, fold, workers };
}
