const NUMBER = /\d{1,15}/g;

/**
 * Names in short: names that differ in one number only become one, `10.0.0.[1-9,12]` or `db[01-03].example`, in the place
 * of the first of them. `between` separates what is left, by default a comma.
 */
export function shortNames(names: readonly string[], between = ","): string {
  const parts = names.map((name) =>
    [...name.matchAll(NUMBER)].map(({ 0: number, index }) => ({
      prefix: name.slice(0, index),
      number,
      suffix: name.slice(index + number.length),
    })),
  );
  const frequency = new Map<string, number>();
  for (const part of parts.flat()) frequency.set(keyOf(part), (frequency.get(keyOf(part)) ?? 0) + 1);
  const groups = new Map<string, Part[]>();
  for (const [index, candidates] of parts.entries()) {
    const count = (part: Part) => frequency.get(keyOf(part)) ?? 0;
    const whole = { prefix: names[index] as string, number: "", suffix: "" };
    const best = candidates.reduce<Part>((one, other) => (count(other) >= count(one) ? other : one), whole);
    groups.set(keyOf(best), [...(groups.get(keyOf(best)) ?? []), best]);
  }
  return [...groups.values()].map(groupText).join(between);
}

interface Part {
  prefix: string;
  number: string;
  suffix: string;
}

function keyOf({ prefix, suffix }: Part): string {
  return `${prefix}\0${suffix}`;
}

function groupText(group: readonly Part[]): string {
  const [{ prefix, number, suffix }] = group as [Part];
  if (group.length === 1) return prefix + number + suffix;
  const numbers = group.map((part) => part.number).sort((a, b) => Number(a) - Number(b) || a.length - b.length);
  return `${prefix}[${rangesOf(numbers).join(",")}]${suffix}`;
}

function rangesOf(numbers: readonly string[]): string[] {
  const ranges: [string, string][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last && follows(last[1], number)) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? first : `${first}-${last}`));
}

/** True for consecutive numbers; numbers with leading zeros must have the same length. */
function follows(before: string, after: string): boolean {
  const isPadded = before.startsWith("0") || after.startsWith("0");
  return Number(after) === Number(before) + 1 && (before.length === after.length || !isPadded);
}
