import { Failure, type FailureCode, type Problem } from "../../core/errors.ts";
import { nearest } from "../../core/nearest.ts";
import { type Checked, quote } from "../../core/shape.ts";

/**
 * One thing that is wrong in a workspace; `file` is relative to the bucket, `path` the place in that file: keys, or such as
 * `line 2, column 5` where the file cannot be parsed.
 */
export interface BuildProblem extends Problem {
  code: FailureCode;
  file: string;
}

/** What an operator should know although the build goes on. */
interface BuildWarning extends Problem {
  file: string;
}

/** The sentence of a problem or warning: the file, the place in it and what is wrong there. */
export function sentenceOf({ code, file, path, message }: BuildWarning & { code?: FailureCode }): string {
  return [code, file, path, message].filter(Boolean).join(": ");
}

/** The sentence for a name that does not exist, with the nearest one that does. */
export function unknownName(kind: string, name: string, known: Iterable<string>): string {
  const close = nearest(name, known);
  return `there is no ${kind} ${quote(name)}${close === undefined ? "" : `; did you mean ${quote(close)}?`}`;
}

/** How many unknown names a refusal lists: the search for the nearest known name takes time. */
const MOST_TOLD = 10;

/**
 * The names in a request, in small letters. Throws `unknown_name` where some are not in `known`: `details` lists the
 * first ten of them, each with its place in the request.
 */
export function requireKnown(
  where: string,
  { kind, path, names }: { kind: string; path: string; names: readonly string[] },
  known: ReadonlySet<string>,
): Set<string> {
  const wanted = names.map((name) => name.trim().toLowerCase());
  const unknown = [...wanted.entries()].filter(([, name]) => !known.has(name));
  const hint = known.size === 0 ? `, nor any other ${kind}: has the bucket been built?` : "";
  const details = unknown.slice(0, MOST_TOLD).map(([index, name]) => {
    return { path: `${path}/${index}`, message: `${where} ${unknownName(kind, name, known)}${hint}` };
  });
  const [first] = details;
  if (!first) return new Set(wanted);
  const more = unknown.length > 1 ? ` (and ${unknown.length - 1} more)` : "";
  throw new Failure("unknown_name", first.message + more, { details });
}

/** What is found in one file. */
export type FileProblems = ReturnType<Problems["in"]>;

/** Collects what is wrong with a workspace, so that one build reports all of it. */
export class Problems {
  readonly errors: BuildProblem[] = [];
  readonly warnings: BuildWarning[] = [];

  error(code: FailureCode, file: string, path: string, message: string): void {
    this.errors.push({ code, file, path, message });
  }

  warn(file: string, path: string, message: string): void {
    this.warnings.push({ file, path, message });
  }

  /** The problems of one file (relative to the bucket), with the code of its errors. */
  in(file: string, code: FailureCode) {
    /** Adds an error at a place in the file; its code is the file's, unless another is given. */
    const error = (path: string, message: string, other = code) => this.error(other, file, path, message);
    const warn = (path: string, message: string) => this.warn(file, path, message);
    return {
      file,
      error,
      warn,
      /** Takes over what checking the file's content found. Answers the value when nothing is wrong with it. */
      take<T>(checked: Checked<T>, codeOf: (path: string) => FailureCode = () => code): T | undefined {
        for (const { path, message } of checked.warnings) warn(path, message);
        if (checked.ok) return checked.value;
        for (const { path, message } of checked.problems) error(path, message, codeOf(path));
        return undefined;
      },
    };
  }

  /** The sentence of the first error without its code, which is for builds; null where there is no error. */
  sentence(): string | null {
    const [first] = this.errors;
    return first ? sentenceOf({ file: first.file, path: first.path, message: first.message }) : null;
  }

  /** Throws one failure when there are errors: code and sentence of the first, all of them in its details. */
  throwIfAny(): void {
    const [first] = this.errors;
    if (!first) return;
    const more = this.errors.length - 1;
    const rest = more === 0 ? "" : ` (and ${more} more ${more === 1 ? "problem" : "problems"})`;
    throw new Failure(first.code, sentenceOf(first) + rest, { details: { problems: this.errors } });
  }
}
