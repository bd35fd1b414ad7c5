// How something was over time: changes as segments, segments as bars. No element is made here.

/** The states that are good ones. */
const GOOD = new Set(["healthy", "in_sync", "reachable", "normal"]);
const [AN_HOUR, A_DAY] = [36e5, 864e5];

/** Over which time strips are drawn: what it is called, how long it is, and for how long a bar stands. */
export const RANGES = {
  day: { label: "24 hours", length: A_DAY, bar: AN_HOUR / 2 },
  week: { label: "7 days", length: 7 * A_DAY, bar: 3 * AN_HOUR },
  month: { label: "30 days", length: 30 * A_DAY, bar: A_DAY / 2 },
  quarter: { label: "90 days", length: 90 * A_DAY, bar: A_DAY },
};

/** Whether a state is a good one. */
export function isGood(state) {
  return GOOD.has(state);
}

/**
 * One place over time: the newest segment last. `record` is how it is now; of `changes`, newest first, those of the place are
 * taken. What was before the first of them is not known.
 * @param {any} record
 * @param {any[]} changes
 * @param {number} now
 */
export function segmentsOf(record, changes, now) {
  const isOwn = ({ job, worker, aspect }) => job === record.job && worker === record.worker && aspect === record.aspect;
  const own = changes.filter(isOwn).reverse();
  const all = own.length > 0 ? own : [record];
  const begins = [...all.map(({ at }) => Date.parse(at)), now];
  return all.map(({ state }, index) => ({ from: begins[index], to: begins[index + 1], state }));
}

/**
 * What a strip shows of some places: a bar for each part of the time, with the share of bad time and the worst state in it, and
 * for all of the time the share that was good and how often something changed. `known` is null where nothing is known.
 * @param {ReturnType<typeof segmentsOf>[]} places
 * @param {keyof typeof RANGES} range
 * @param {number} now
 */
export function stripOf(places, range, now) {
  const { length, bar: width } = RANGES[range];
  const begin = now - length;
  const bars = Array.from({ length: length / width }, (_, index) => {
    const from = begin + index * width;
    return { from, to: from + width, known: 0, bad: new Map() };
  });
  const sums = { known: 0, good: 0, changes: 0 };
  for (const segments of places)
    for (const [index, { from, to, state }] of segments.entries()) {
      if (index > 0 && from >= begin) sums.changes++;
      const [start, end] = [Math.max(from, begin), to];
      if (end <= start) continue;
      sums.known += end - start;
      if (isGood(state)) sums.good += end - start;
      const last = Math.min(bars.length - 1, Math.floor((end - begin) / width));
      for (const bar of bars.slice(Math.floor((start - begin) / width), last + 1)) {
        const ms = Math.min(end, bar.to) - Math.max(start, bar.from);
        bar.known += Math.max(0, ms);
        if (!isGood(state) && ms > 0) bar.bad.set(state, (bar.bad.get(state) ?? 0) + ms);
      }
    }
  return { bars: bars.map(shareOf), changes: sums.changes, good: sums.known > 0 ? sums.good / sums.known : null };
}

/** @param {{ from: number, to: number, known: number, bad: Map<string, number> }} bar */
function shareOf({ from, to, known, bad }) {
  const [[state] = [""]] = [...bad].sort(([, one], [, other]) => other - one);
  const ms = [...bad.values()].reduce((sum, one) => sum + one, 0);
  return { from, to, isKnown: known > 0, state, bad: known > 0 ? ms / known : 0 };
}

/** A share as people write it: never `100 %` where some of the time was bad. */
export function percentText(share) {
  if (share === 1) return "100 %";
  return `${(Math.floor(share * 10_000) / 100).toFixed(2).replace(/\.?0+$/, "")} %`;
}
