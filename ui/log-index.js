/** Text that no log holds: a search for it counts lines and finds none. */
const NOWHERE = "\u{10fffd}\u{10fffc}\u{10fffd}";
const MOST_SEARCHES = 40;
const PAGE = 100;

/**
 * What is known about which line begins at which byte: places that the server's searches have passed. They go through
 * the log in large steps, so there are few.
 */
export class LineIndex {
  #places = [{ offset: 0, line: 1 }];

  /** Takes where a search goes on, `<offset>.<line>`; answers it as `{ offset, line }`. */
  learn(next) {
    const [offset, line] = next.split(".").map(Number);
    const before = this.#places.findLastIndex((place) => place.offset <= offset);
    if (this.#places[before].offset !== offset) this.#places.splice(before + 1, 0, { offset, line });
    return { offset, line };
  }

  /** The last known place that is not after an offset. */
  before(offset) {
    return this.#places.findLast((place) => place.offset <= offset);
  }

  /**
   * The number of one of some lines that follow each other, as `{ offset, line }`; undefined where it cannot be found
   * out with a few searches. At the end of the log lines are counted up to there; elsewhere one of the lines is searched.
   */
  async place(lines, size, search) {
    const [first, end] = [lines[0].start, lines.at(-1).end];
    const q = end >= size ? NOWHERE : longestOf(lines);
    let place = this.before(end);
    for (let searches = 0; q && searches < MOST_SEARCHES && place.offset < first; searches++) {
      const after = `${place.offset}.${place.line}`;
      const { matches, next } = await search({ q, exact: true, after, limit: PAGE });
      const match = matches.find(({ offset }) => offset >= first && offset < end);
      if (match) return match;
      if (next === after) return undefined;
      place = this.learn(next);
    }
    return place.offset >= first && place.offset <= end ? place : undefined;
  }
}

/** The longest text in some lines that can be searched for: the least likely to stand elsewhere too. */
function longestOf(lines) {
  const whole = lines.filter(({ continued, open }) => !continued && !open);
  const texts = whole.flatMap(({ text }) => text.slice(0, 1000).match(/[ -~]{1,150}/g) ?? []);
  return texts.reduce((longest, text) => (text.length > longest.length ? text : longest), "");
}
