/** The closing lines of make after a failed target; they do not say why the target failed. */
const CLOSING = /^\S*make(?:\[\d+\])?: \*\*\* /;

/** The lines that Node prints after the message of an error. */
const TRACE = /^ +at |^Node\.js v/;

const NOUNS = "errors?|exceptions?|failures?|failed|panics?|fatal";
/** Words of programs that tell what went wrong. Also as the end of a name: `TypeError`, `IOException`, `ECONNREFUSED`. */
const WORDS = [
  `[a-z]*error|errors|[a-z]*exception|fatal|panic|panicked|failed|failure|denied|[a-z]*refused|no space|cannot|traceback`,
  "unable to|out of memory|segmentation fault|core dumped|command not found|no such file|unreachable|aborted",
].join("|");
const TROUBLE = new RegExp(`(?<![\\w-])(?:${WORDS})(?![\\w-])`, "i");
/** What says that nothing went wrong: `0 errors`, `no failures`, `error=0`, `"error": null`. */
const NOTHING = new RegExp(
  [
    `(?<![\\w.])(?:0|no|zero|without(?: any)?) (?:[a-z]+ )?(?:${NOUNS})(?!\\w)`,
    `(?<!\\w)(?:${NOUNS})["']?\\s*[=:]\\s*["']?(?:0(?![\\w.])|(?:none|null|nil|false)(?=["',;}\\]]|\\s*$|\\s+\\w+=))`,
  ].join("|"),
  "gi",
);
/** Some word of every line of trouble, to be found quickly in much text: a line without one is no such line. */
export const TROUBLE_HINT =
  /error|exception|fatal|panic|fail|denied|refused|no space|cannot|traceback|unable to|out of memory|segmentation fault|core dumped|not found|no such file|unreachable|aborted/gi;

/** True for a line that make adds after a failed target. */
export function isClosing(line: string): boolean {
  return CLOSING.test(line);
}

/** True for a line of a program's output that tells of trouble, by its words; never for a closing line of make. */
export function tellsTrouble(line: string): boolean {
  return TROUBLE.test(line) && !isClosing(line) && TROUBLE.test(line.replace(NOTHING, ""));
}

/**
 * The line of a program's output that most likely tells why the program failed: the last line of trouble on stderr, else
 * on any stream, else the last line that is neither a closing line of make nor a line of a trace, else the last line.
 */
export function reasonLine<L extends { text: string; stream?: string | null }>(lines: readonly L[]): L | undefined {
  const telling = lines.filter(({ text }) => !isClosing(text) && !TRACE.test(text));
  const troubles = telling.filter(({ text }) => tellsTrouble(text));
  return troubles.findLast(({ stream }) => stream === "stderr") ?? troubles.at(-1) ?? telling.at(-1) ?? lines.at(-1);
}
