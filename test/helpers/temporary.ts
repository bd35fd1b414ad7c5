import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TestContext } from "node:test";

/** A folder for one test, removed after it. */
export function temporaryFolder(t: Pick<TestContext, "after">): string {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

/** Waits until `condition` holds; fails the test with `what` after the limit. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  limitMs = 20_000,
): Promise<void> {
  const end = performance.now() + limitMs;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`waited ${limitMs} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
