import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { temporaryFolder } from "./temporary.ts";

const PIXELS = 4;

/** What zbarimg reads from rows of modules, `true` for dark. Fails when it reads nothing. */
export function readQr(t: Pick<TestContext, "after">, rows: boolean[][]): string {
  return readQrs(t, [rows]).join("\n");
}

/** The same of several codes, none of which holds a line end. Fails when it reads nothing from one of them. */
export function readQrs(t: Pick<TestContext, "after">, codes: readonly boolean[][][]): string[] {
  const folder = temporaryFolder(t);
  const files = codes.map((rows, index) => pictureOf(rows, path.join(folder, `${index}.pbm`)));
  const text = execFileSync("zbarimg", ["--raw", "--quiet", "--nodbus", ...files], { encoding: "utf8" });
  return text.replace(/\n$/, "").split("\n");
}

function pictureOf(rows: boolean[][], file: string): string {
  const lines = rows.flatMap((row) => {
    const line = row.map((dark) => `${dark ? 1 : 0} `.repeat(PIXELS)).join("");
    return Array(PIXELS).fill(line);
  });
  writeFileSync(file, `P1\n${(rows[0]?.length ?? 0) * PIXELS} ${lines.length}\n${lines.join("\n")}\n`);
  return file;
}

/** The modules of a code that was printed in ASCII, quiet zone included. */
export function rowsOfAscii(text: string): boolean[][] {
  return text
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => (line.match(/../g) ?? []).map((module) => module === "##"));
}
