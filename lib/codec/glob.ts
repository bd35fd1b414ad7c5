/**
 * Whether a glob fits a path (relative, with `/`). `*`, `?` and `[…]` (`[^…]` negates, `\` escapes) stay within a path part.
 * A pattern without `/` fits the whole path or its last part, one with `/` the whole path; `d/` and `d/**` fit `d` and all
 * below it. Otherwise `**` ends a beginning of the path, and what follows it (less one `/`) fits the rest of the path or
 * its last part: `**` before `/d/n` means `d/n` at the top only. No negation. An invalid pattern fits nothing.
 */
export function matchGlob(pattern: string, path: string): boolean {
  if (validateGlob(pattern) !== undefined) return false;
  if (pattern.endsWith("/")) return isWithin(pattern.slice(0, -1), path);
  if (pattern.endsWith("/**")) return isWithin(pattern.slice(0, -3), path);
  const base = path.slice(path.lastIndexOf("/") + 1);
  const at = pattern.indexOf("**");
  if (at < 0) return fitsPath(pattern, path) || (!pattern.includes("/") && fitsPath(pattern, base));
  const [before, after] = [pattern.slice(0, at), pattern.slice(at + 2).replace(/^\//, "")];
  for (let end = 0; end <= path.length; end++) {
    if (!fitsPath(before, path.slice(0, end))) continue;
    if (after === "" || fitsPath(after, path.slice(end)) || fitsPath(after, base)) return true;
  }
  return false;
}

/** What is wrong with a glob, or undefined. */
export function validateGlob(pattern: string): string | undefined {
  if (pattern === "") return "the glob is empty";
  const at = pattern.indexOf("**");
  if (at >= 0 && pattern.includes("**", at + 1)) return `the glob ${JSON.stringify(pattern)} has ** more than once`;
  for (const part of pattern.split("/"))
    if (!compilePart(part)) return `the glob ${JSON.stringify(pattern)} has a [ or a \\ that is not complete`;
  return undefined;
}

/** True for the folder that fits and for all below it. */
function isWithin(folder: string, path: string): boolean {
  const whole = folder.includes("**") ? matchGlob : fitsPath;
  for (let end = path.indexOf("/"); end >= 0; end = path.indexOf("/", end + 1))
    if (whole(folder, path.slice(0, end))) return true;
  return whole(folder, path);
}

function fitsPath(pattern: string, path: string): boolean {
  const patterns = pattern.split("/");
  const parts = path.split("/");
  return patterns.length === parts.length && patterns.every((one, at) => partFits(compilePart(one) ?? [], parts[at] ?? ""));
}

/** `*`, or what one character must be. */
type GlobStep = "*" | ((character: string) => boolean);

/** Each `*` takes the shortest run, and only the last `*` is tried again: no pattern takes more than n × m steps. */
function partFits(steps: GlobStep[], part: string): boolean {
  const characters = [...part];
  let [at, next, starAt, starNext] = [0, 0, -1, 0];
  while (next < characters.length) {
    const step = steps[at];
    if (step === "*") {
      [starAt, starNext] = [at++, next];
    } else if (step?.(characters[next] as string)) {
      at++;
      next++;
    } else {
      if (starAt < 0) return false;
      at = starAt + 1;
      next = ++starNext;
    }
  }
  return steps.slice(at).every((step) => step === "*");
}

function compilePart(part: string): GlobStep[] | undefined {
  const steps: GlobStep[] = [];
  const token = /\*|\?|\[(\^|(?!\^))((?:(?:\\.|[^\\\]-])(?:-(?:\\.|[^\\\]-]))?)+)\]|\\(.)|([^[\\])/suy;
  while (token.lastIndex < part.length) {
    const match = token.exec(part);
    if (!match) return undefined;
    const [text, negation, ranges, escaped, plain] = match;
    if (text === "*") steps.push("*");
    else if (text === "?") steps.push(() => true);
    else if (ranges !== undefined) steps.push(oneOfRanges(ranges, negation === "^"));
    else steps.push((character) => character === (escaped ?? plain));
  }
  return steps;
}

function oneOfRanges(text: string, negated: boolean): GlobStep {
  const ranges = [...text.matchAll(/\\?(.)(?:-\\?(.))?/gsu)].map(([, low = "", high = low]) => [low, high] as const);
  return (character) => {
    const code = character.codePointAt(0) ?? 0;
    const inside = ranges.some(([low, high]) => (low.codePointAt(0) ?? 0) <= code && code <= (high.codePointAt(0) ?? 0));
    return inside !== negated;
  };
}
