import { readFileSync } from "node:fs";

/** What test/fast.json lists: test files and folders of them, those with a `!` left out again. */
export const FAST = JSON.parse(readFileSync(new URL("../fast.json", import.meta.url), "utf8")) as readonly string[];

/** Whether a test file is that name, or lies in the folder of that name. */
export function isBelow(file: string, name: string): boolean {
  return file === name || file.startsWith(`${name}/`);
}

/** Whether a test file is one of the fast ones. */
export function isFast(file: string): boolean {
  return FAST.some((name) => isBelow(file, name)) && !FAST.some((name) => isBelow(`!${file}`, name));
}
