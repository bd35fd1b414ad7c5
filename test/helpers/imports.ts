// Reads what files import from each other, type imports included, from the text of the files.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

/** A file of the project and its content. */
export interface Source {
  /** Path from the root of the project, with `/`. */
  file: string;
  text: string;
}

/** One import of a file. */
export interface Import {
  line: number;
  /** As it is written; undefined where it is computed. */
  target: string | undefined;
}

/** The code with comments (and strings, if asked) blanked out, all positions unchanged. */
export function codeOf(text: string, keepStrings: boolean): string {
  const token =
    /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\[\s\S]|[^`\\])*`|(?<=[=(,:[!&|?{};\n]\s*|\breturn )\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\//g;
  return text.replace(token, (found) => (keepStrings && /^["'`]/.test(found) ? found : found.replace(/[^\n]/g, " ")));
}

/** The number of the line, from 1, that an offset lies in. */
export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

/** Everything a file imports: static, type-only, dynamic, import types, require and getBuiltinModule. */
export function importsOf(source: Source): Import[] {
  const code = codeOf(source.text, true);
  const bare = codeOf(source.text, false);
  const statement = /^(?:import|export)\s[^;"'=()]*?\bfrom\s*(["'])(.+?)\1|^import\s*(["'])(.+?)\3/gm;
  const call = /(?<![.\w])(?:import|require|process\.getBuiltinModule)\(\s*(?:(["'`])([^"'`$]+)\1\s*[,)])?/g;
  return [...code.matchAll(statement), ...code.matchAll(call)]
    .filter((match) => bare.startsWith(match[0].slice(0, 6), match.index))
    .map((match) => ({ line: lineAt(code, match.index), target: match[2] ?? match[4] }));
}

/** Each import cycle once, as the files from its first to its first again. */
export function cyclesOf(sources: readonly Source[]): string[][] {
  const targets = new Map(
    sources.map((source) => [
      source.file,
      importsOf(source).flatMap(({ target }) =>
        target?.startsWith(".") ? [path.posix.join(path.posix.dirname(source.file), target)] : [],
      ),
    ]),
  );
  const found: string[][] = [];
  const done = new Set<string>();
  const visit = (file: string, chain: string[]) => {
    const at = chain.indexOf(file);
    if (at >= 0) found.push([...chain.slice(at), file]);
    if (at >= 0 || done.has(file)) return;
    for (const target of targets.get(file) ?? []) visit(target, [...chain, file]);
    done.add(file);
  };
  for (const { file } of sources) visit(file, []);
  return found;
}

/** All scripts (TypeScript and JavaScript) below some folders of a project. */
export function readSources(root: string, ...folders: string[]): Source[] {
  return folders.flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.(?:ts|js|mjs|cjs)$/.test(entry.name))
      .map((entry) => path.join(entry.parentPath, entry.name))
      .map((file) => ({ file: path.relative(root, file).split(path.sep).join("/"), text: readFileSync(file, "utf8") })),
  );
}
