import { readFileSync } from "node:fs";
import path from "node:path";

const UI = new URL("../ui/", import.meta.url);
const STATIC_IMPORT = /^(?:import|export)\b[^"]*?\bfrom "(\.[^"]+)"/gm;
const PRELOADS = /(?: *<link rel="modulepreload"[^>]*>\n)*(?= *<script type="module")/;

/** The modules of the console that a page needs at once: those that its first script imports, without the script itself. */
export function modulesOf(first: string): string[] {
  const found = new Set<string>();
  const visit = (file: string) => {
    if (found.has(file)) return;
    found.add(file);
    for (const [, target] of readFileSync(new URL(file, UI), "utf8").matchAll(STATIC_IMPORT))
      visit(path.posix.join(path.posix.dirname(file), target as string));
  };
  visit(first);
  return [...found].filter((file) => file !== first).sort();
}

/** The text of a page of the console with a preload for each of these modules, so that they come in one round trip. */
export function withPreloads(html: string, modules: readonly string[]): string {
  const links = modules
    .filter((file) => !html.includes(`src="/${file}"`))
    .map((file) => `    <link rel="modulepreload" href="/${file}">\n`)
    .join("");
  return html.replace(PRELOADS, links);
}
