import { lstatSync } from "node:fs";
import path from "node:path";
import { type PlacedValue, placesInJson } from "../../codec/config/json.ts";
import { placesInToml } from "../../codec/config/toml.ts";
import type { FailureCode } from "../../core/errors.ts";
import { readRegularSync } from "../../core/files.ts";
import { lineAndColumn } from "../../core/plain-text.ts";
import { join } from "../../core/shape.ts";
import type { Layout } from "../base/layout.ts";
import type { BuildProblem, Problems } from "../base/problems.ts";
import { SOURCE_FILE_BYTES } from "../source/source-file.ts";

/** A finding of a check: `line` and `column` (in characters) count from 1, and are 1 where it is about the whole file. */
export type PlacedProblem = ReturnType<typeof placeProblem>;

type Finding = Omit<BuildProblem, "code"> & { code?: FailureCode | null };

/** Everything that is wrong with a workspace, each with its line and column, by file and place. */
export function placedProblems(layout: Layout, { errors, warnings }: Problems): PlacedProblem[] {
  const texts = new Map<string, Placer>();
  const placerOf = (file: string) => {
    const known = texts.get(file) ?? placerIn(path.join(layout.root, file));
    texts.set(file, known);
    return known;
  };
  const found = [...errors, ...warnings].map((one: Finding) => inItsFile(one, layout));
  const placed = found.map((one) => placeProblem(one, placerOf));
  const byFile = (a: string, b: string) => Number(a > b) - Number(a < b);
  return placed.sort((a, b) => byFile(a.file, b.file) || a.line - b.line || a.column - b.column);
}

/** A problem of a folder names the file in it. */
function inItsFile(one: Finding, { root }: Layout): Finding {
  const found = (name: string) => lstatSync(path.join(root, name), { throwIfNoEntry: false });
  const file = path.join(one.file, one.path);
  const isInside = one.path !== "" && found(one.file)?.isDirectory() === true && found(file)?.isFile() === true;
  return isInside ? { ...one, file, path: "" } : one;
}

function placeProblem({ code = null, file, path: at, message }: Finding, placerOf: (file: string) => Placer) {
  const severity = code === null ? "warning" : "error";
  const [, line = "", column = ""] = /^line (\d+), column (\d+)$/.exec(at) ?? [];
  const place = line === "" ? placerOf(file)(at) : { line: Number(line), column: Number(column) };
  return {
    severity: severity as "error" | "warning",
    /** Null for a warning. */
    code,
    /** Relative to the bucket. */
    file,
    ...place,
    /** The place in JSON and TOML, such as `hooks/check/executed_on/0`; empty where line and column say it all. */
    path: line === "" ? at : "",
    message,
  };
}

/** Answers where a path of {@link join} leads to in a file, as far as it does. */
type Placer = (at: string) => ReturnType<typeof lineAndColumn>;

function placerIn(file: string): Placer {
  try {
    const text = readRegularSync(file, SOURCE_FILE_BYTES);
    const places = file.endsWith(".json") ? placesInJson(text) : placesInToml(text);
    return (at) => lineAndColumn(text, placeOf(places, at));
  } catch {
    // A problem of what cannot be read brings its own place, if any.
    return () => ({ line: 1, column: 1 });
  }
}

/** Keys compare without case, and of two equal ones the last counts, as in a build. */
function placeOf({ at, members }: PlacedValue, way: string): number {
  const wanted = way.toLowerCase();
  const next = members.findLast(({ key }) => wanted === partOf(key) || wanted.startsWith(`${partOf(key)}/`));
  return next === undefined ? at : placeOf(next.value, way.slice(partOf(next.key).length + 1));
}

function partOf(key: string): string {
  return join("", key).toLowerCase();
}
