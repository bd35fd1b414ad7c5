import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TestContext } from "node:test";
import { patience } from "../../scripts/patience.ts";

const folders: string[] = [];

// Code that leaves a file open here leaves it open in a server too: the whole test file fails.
process.once("exit", () => {
  const left = openFiles().filter((file) => folders.some((folder) => file.startsWith(`${folder}/`)));
  if (left.length === 0) return;
  process.stderr.write(`Files that were opened and not closed: ${left.join(", ")}\n`);
  process.exitCode = 1;
});

/** The files that this process has open. */
export function openFiles(): string[] {
  return readdirSync("/proc/self/fd").flatMap((descriptor) => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`);
    } catch {
      // The descriptor with which the folder was read.
      return [];
    }
  });
}

/** A folder for one test, removed after it; without one, for all tests of a file, removed when its process ends. */
export function temporaryFolder(t?: Pick<TestContext, "after">): string {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-test-"));
  folders.push(folder);
  const remove = () => {
    // Only root can remove files from a read-only folder, such as a revision.
    if (process.getuid?.() !== 0) execFileSync("chmod", ["-R", "u+rwX", folder]);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  if (t) t.after(remove);
  else process.once("exit", remove);
  return folder;
}

/** What is to be in a folder, by path: text, or what makes it. */
export type Files = Record<string, string | ((file: string) => void)>;

/** Puts these files into a folder, and answers the folder. */
export function writeFiles(root: string, files: Files): string {
  mkdirSync(root, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(root, name);
    mkdirSync(path.dirname(file), { recursive: true });
    if (typeof content === "string") writeFileSync(file, content);
    else content(file);
  }
  return root;
}

/** Makes a symbolic link. */
export const link = (target: string) => (file: string) => symlinkSync(target, file);
/** Makes a FIFO. */
export const fifo = (file: string) => void execFileSync("mkfifo", [file]);

/** Waits until `condition` holds; fails the test with `what` after the limit, which a busy machine makes longer. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, limitMs = 20_000): Promise<void> {
  const start = performance.now();
  while (!(await condition())) {
    const waitedMs = Math.round(performance.now() - start);
    if (waitedMs > patience(limitMs)) throw new Error(`waited ${waitedMs} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
