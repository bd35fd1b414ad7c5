/** The name closest to a mistyped one, or undefined when none is near (more than a third of it differs). */
export function nearest(word: string, names: Iterable<string>): string | undefined {
  return closest(word, names, Math.max(1, Math.floor(word.length / 3)));
}

/** The known key that `key` misspells: at most two of its letters differ, and fewer than half of them. */
export function misspelt(key: string, known: Iterable<string>): string | undefined {
  return closest(key, known, Math.min(2, Math.ceil(key.length / 2) - 1));
}

function closest(word: string, names: Iterable<string>, limit: number): string | undefined {
  let best: string | undefined;
  let bestDistance = limit + 1;
  for (const name of names) {
    if (Math.abs(name.length - word.length) >= bestDistance) continue;
    const distance = editDistance(word.toLowerCase(), name.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [name, distance];
  }
  return best;
}

/** How many letters differ, are missing or are too many; two neighbours in the wrong order count as one. */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitute = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = isSwap ? (before[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY;
      next.push(Math.min(substitute, swap, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}
