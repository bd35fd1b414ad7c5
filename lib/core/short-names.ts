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
  const alike = Map.groupBy(parts.flat(), keyOf);
  const count = (part: Part) => alike.get(keyOf(part))?.length as number;
  const best = parts.map((candidates, index): Part => {
    const whole = { prefix: names[index] as string, number: "", suffix: "" };
    return candidates.reduce((one, other) => (count(other) >= count(one) ? other : one), candidates[0] ?? whole);
  });
  return [...Map.groupBy(best, keyOf).values()].map(groupText).join(between);
}

interface Part {
  prefix: string;
  number: string;
  suffix: string;
}

/** A name without a number is alike to none, not even to its own with a number behind it. */
function keyOf({ prefix, number, suffix }: Part): string {
  return number === "" ? prefix : `${prefix}\0${suffix}`;
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
