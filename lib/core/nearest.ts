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
  const letters = b.split("");
  let before: number[] = [];
  let row = [0, ...letters.map((_, j) => j + 1)];
  for (const [i, one] of a.split("").entries()) {
    const next = [i + 1];
    for (const [j, other] of letters.entries()) {
      const substitute = (row[j] as number) + (one === other ? 0 : 1);
      const isSwap = one === b[j - 1] && other === a[i - 1];
      const swap = isSwap ? (before[j - 1] as number) + 1 : Number.POSITIVE_INFINITY;
      next.push(Math.min(substitute, swap, (row[j + 1] as number) + 1, (next[j] as number) + 1));
    }
    [before, row] = [row, next];
  }
  return row.at(-1) as number;
}
