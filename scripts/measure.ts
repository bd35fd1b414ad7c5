// How large the code is: `npm run measure`. test/scripts/measure.test.ts keeps the upper bounds.
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync } from "node:zlib";
import type { AnyNode } from "acorn";
import { readConsole } from "../lib/server/console-files.ts";
import { cyclesOf, importsOf, lineAt, readSources, type Source } from "../test/helpers/imports.ts";
import { childrenOf, syntaxOf } from "../test/helpers/syntax.ts";

/** The most files of a room (a folder), and the most lines and parameters of a function. */
export const MOST = { files: 15, functionLines: 50, parameters: 4 };

/** The median, the value that nine of ten do not exceed, and the largest. */
interface Spread {
  median: number;
  p90: number;
  max: number;
}

/** What is measured in the scripts (TypeScript or JavaScript) below one folder. */
export interface Measures {
  files: number;
  /** Lines that are neither blank nor comment. */
  codeLines: number;
  /** All lines of a file. */
  fileLines: Spread;
  /** The lines of a function with a block, without those of such functions in it: they count by themselves. */
  functionLines: Spread;
  parameters: Spread;
  imports: Spread;
  /** Names that more than two files define at their top level, the most frequent first. */
  sharedNames: { name: string; files: number }[];
  /** Each import cycle as its files. */
  cycles: string[][];
  /** Rooms, and functions as `<file>:<line>`, that are beyond {@link MOST}. */
  crowded: string[];
  longFunctions: string[];
  wideFunctions: string[];
}

/** A folder with code of any language. */
export interface Room {
  folder: string;
  files: number;
  codeLines: number;
}

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** A line that is blank, or that a comment begins or goes on in. */
const NO_CODE = /^\s*(?:(?:\/\/|\/\*|\*|<!--).*)?$/;
const NO_CODE_HASH = /^\s*(?:#.*)?$/;
const TOP_LEVEL = /^(?:export )?(?:async )?(?:abstract )?(?:function\*?|const|let|class|interface|type) (\w+)/gm;

/** The scripts below a folder of the project. */
export function scriptsOf(folder: string): Source[] {
  return readSources(ROOT, folder);
}

/** Measures scripts. */
export function measure(sources: readonly Source[]): Measures {
  const functions = sources.flatMap(functionsOf);
  return {
    files: sources.length,
    codeLines: sum(sources.map(codeLinesOf)),
    fileLines: spreadOf(sources.map(({ text }) => text.split("\n").length - 1)),
    functionLines: spreadOf(functions.map(({ lines }) => lines)),
    parameters: spreadOf(functions.map(({ parameters }) => parameters)),
    imports: spreadOf(sources.map((source) => importsOf(source).length)),
    sharedNames: sharedNamesOf(sources),
    cycles: cyclesOf(sources),
    crowded: roomsOf(sources)
      .filter(({ files }) => files > MOST.files)
      .map(({ folder }) => folder),
    longFunctions: functions.filter(({ lines }) => lines > MOST.functionLines).map(({ place }) => place),
    wideFunctions: functions.filter(({ parameters }) => parameters > MOST.parameters).map(({ place }) => place),
  };
}

/** The rooms below a folder of the project, with all code in them: scripts, shell, Python, pages and styles. */
export function rooms(folder: string): Room[] {
  const files = globSync(`${folder}/**/*.{ts,js,sh,py,html,css}`, { cwd: ROOT }).sort();
  return roomsOf(files.map((file) => ({ file, text: readFileSync(path.join(ROOT, file), "utf8") })));
}

/** The files of the console with their bytes as they are sent: compressed as the server does it (lib/server/static.ts). */
export async function sentFiles(): Promise<Map<string, number>> {
  const assets = [...(await readConsole())].filter(([name]) => path.extname(name) !== "");
  // The same content may lie at several paths.
  const contents = new Map(assets.map(([name, { content }]) => [content, name]));
  return new Map([...contents].map(([content, name]) => [name, brotliCompressSync(content).length]));
}

/** How many bytes that is in all. */
export async function sentBytes(): Promise<number> {
  return sum([...(await sentFiles()).values()]);
}

function roomsOf(sources: readonly Source[]): Room[] {
  return [...Map.groupBy(sources, ({ file }) => path.posix.dirname(file))]
    .map(([folder, own]) => ({ folder, files: own.length, codeLines: sum(own.map(codeLinesOf)) }))
    .sort((a, b) => (a.folder < b.folder ? -1 : 1));
}

function codeLinesOf({ file, text }: Source): number {
  const noCode = /\.(?:sh|py)$/.test(file) ? NO_CODE_HASH : NO_CODE;
  return text.split("\n").filter((line) => !noCode.test(line)).length;
}

/** A function or method with a block. */
interface FunctionSize {
  place: string;
  lines: number;
  parameters: number;
}

function functionsOf({ file, text: source }: Source): FunctionSize[] {
  const { text, program } = syntaxOf(source);
  const found: FunctionSize[] = [];
  /** Answers how many lines the functions at and below a node have. */
  const visit = (node: AnyNode): number => {
    const inner = sum(childrenOf(node).map(visit));
    if (!("params" in node) || node.body.type !== "BlockStatement") return inner;
    const lines = text.slice(node.start, node.end).split("\n").length;
    found.push({ place: `${file}:${lineAt(text, node.start)}`, lines: lines - inner, parameters: node.params.length });
    return lines;
  };
  visit(program);
  return found;
}

function sharedNamesOf(sources: readonly Source[]): Measures["sharedNames"] {
  const names = sources.flatMap(({ text }) => [...new Set([...text.matchAll(TOP_LEVEL)].map((match) => match[1] ?? ""))]);
  return [...Map.groupBy(names, (name) => name)]
    .map(([name, { length: files }]) => ({ name, files }))
    .filter(({ files }) => files > 2)
    .sort((a, b) => b.files - a.files);
}

function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
  return { median: at(0.5), p90: at(0.9), max: at(1) };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The measures of some folders side by side, and their rooms. */
function report(folders: readonly string[]): string {
  const measures = folders.map((folder) => measure(scriptsOf(folder)));
  const row = (label: string, cell: (one: Measures) => number | string) => tableRow(label, ...measures.map((one) => cell(one)));
  const spread = ({ median, p90, max }: Spread) => `${median} / ${p90} / ${max}`;
  return [
    tableRow("", ...folders),
    tableRow("---", ...folders.map(() => "---")),
    row("files", ({ files }) => files),
    row("code lines", ({ codeLines }) => codeLines),
    row("lines of a file: median / p90 / most", ({ fileLines }) => spread(fileLines)),
    row("lines of a function", ({ functionLines }) => spread(functionLines)),
    row("parameters of a function", ({ parameters }) => spread(parameters)),
    row("imports of a file", ({ imports }) => spread(imports)),
    row("names that more than two files define", ({ sharedNames }) => sharedNames.length),
    row("import cycles", ({ cycles }) => cycles.length),
    row(`rooms with more than ${MOST.files} files`, ({ crowded }) => crowded.length),
    ...measures.map((one, index) => details(folders[index] as string, one)),
    tableRow("room", "files", "code lines"),
    tableRow("---", "---:", "---:"),
    ...folders.flatMap(rooms).map(({ folder, files, codeLines }) => tableRow(folder, files, codeLines)),
  ].join("\n");
}

/** What some numbers of a folder stand for, a line each. */
function details(folder: string, one: Measures): string {
  const lists = {
    "names in more than two files": one.sharedNames.map(({ name, files }) => `${name} (${files})`),
    "import cycles": one.cycles.map((files) => files.join(" -> ")),
    "crowded rooms": one.crowded,
    [`functions of more than ${MOST.functionLines} lines`]: one.longFunctions,
    [`functions with more than ${MOST.parameters} parameters`]: one.wideFunctions,
  };
  const told = Object.entries(lists).filter(([, list]) => list.length > 0);
  return told.map(([label, list]) => `\n${folder}: ${label}: ${list.join(", ")}\n`).join("");
}

function tableRow(...cells: (string | number)[]): string {
  return `| ${cells.join(" | ")} |`;
}

if (import.meta.main) {
  const sent = [...(await sentFiles())].map(([name, bytes]) => `${name} ${bytes}`);
  console.log(`${report(["lib", "ui"])}\n\nui as it is sent: ${await sentBytes()} bytes: ${sent.join(", ")}`);
}
