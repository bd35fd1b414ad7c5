/** The closing lines of make after a failed target; they do not say why the target failed. */
const CLOSING = /^\S*make(?:\[\d+\])?: \*\*\* /;

const NOUNS = "errors?|exceptions?|failures?|failed|panics?|fatal";
/** Words of programs that tell what went wrong. Also as the end of a name: `TypeError`, `IOException`. */
const WORDS = [
  `[a-z]*error|errors|[a-z]*exception|fatal|panic|panicked|failed|failure|denied|refused|no space|cannot|traceback`,
  "unable to|out of memory|segmentation fault|core dumped|command not found|no such file|unreachable|aborted",
].join("|");
const TROUBLE = new RegExp(`(?<![\\w-])(?:${WORDS})(?![\\w-])`, "i");
/** What says that nothing went wrong: `0 errors`, `no failures`, `error=0`, `"error": null`. */
const NOTHING = new RegExp(
  `(?<![\\w.])(?:0|no|zero|without(?: any)?) (?:[a-z]+ )?(?:${NOUNS})(?!\\w)|(?<!\\w)(?:${NOUNS})["']?\\s*[=:]\\s*["']?(?:0|no|none|null|nil|false)(?![\\w.])`,
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
