import { Failure } from "../core/errors.ts";

/** A job version: three numbers (missing ones are 0) and an optional prerelease suffix, "" for a release. */
export interface Version {
  readonly numbers: readonly [number, number, number];
  readonly prerelease: string;
}

/**
 * Reads `1`, `v2.1`, `1.2.3`, `1.2.3-rc1`: blanks around it and one leading `v` or `V` are dropped, then come one to three
 * whole numbers with dots and, after the first dash, a prerelease suffix. Throws `ErrInvalidJobVersion` for anything else.
 */
export function parseVersion(text: string): Version {
  const trimmed = text.trim();
  const match = /^[vV]?([^-]*)(?:-(.*))?$/s.exec(trimmed);
  const core = match?.[1] ?? "";
  if (trimmed === "") throw invalid(text, "it is empty");
  if (match?.[2] === "") throw invalid(text, "the prerelease suffix after the dash is empty");
  const parts = core.split(".");
  if (parts.length > 3) throw invalid(text, "it has more than three parts");
  const [major, minor = 0, patch = 0] = parts.map((part) => {
    const value = /^\+?[0-9]+$/.test(part) ? Number(part) : Number.NaN;
    if (Number.isSafeInteger(value)) return value;
    throw invalid(text, `expected a whole number, found ${JSON.stringify(part)}`);
  }) as [number, ...number[]];
  return { numbers: [major, minor, patch], prerelease: match?.[2] ?? "" };
}

function invalid(text: string, why: string): Failure {
  return new Failure("ErrInvalidJobVersion", `Invalid job version ${JSON.stringify(text)}: ${why}`);
}

/**
 * Below 0, 0 or above 0 as `a` sorts before, with or after `b`: by number, a prerelease before its release, two
 * prereleases of one release as plain text (so rc10 sorts before rc9).
 */
export function compareVersions(a: Version, b: Version): number {
  for (const [index, number] of a.numbers.entries()) {
    const other = b.numbers[index] as number;
    if (number !== other) return number - other;
  }
  if (a.prerelease === "" || b.prerelease === "") return Number(a.prerelease === "") - Number(b.prerelease === "");
  return Buffer.compare(Buffer.from(a.prerelease), Buffer.from(b.prerelease));
}
