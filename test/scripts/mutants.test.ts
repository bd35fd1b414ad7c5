import assert from "node:assert/strict";
import { readFileSync, symlinkSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { allMutants, draw, equivalents, isSame, mutantsOf } from "../helpers/mutant-draw.ts";
import { tryAll } from "../helpers/mutant-run.ts";
import { Copy, reaches } from "../helpers/mutant-tests.ts";
import { mutationsOf } from "../helpers/mutations.ts";
import { temporaryFolder, writeFiles } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";

/** What becomes of a source by each of its mutations, with the kind. */
function changed(source: string): [string, string][] {
  return mutationsOf(source).map(({ start, end, becomes, kind }) => [kind, source.slice(0, start) + becomes + source.slice(end)]);
}

test("a condition is forced and denied; one that leaves or throws is a guard or a check", () => {
  assert.deepEqual(changed("for (;;) if (a) break;"), [
    ["other", "for (;;) if (true) break;"],
    ["guard", "for (;;) if (false) break;"],
    ["other", "for (;;) if (!(a)) break;"],
  ]);
  const check = changed("if (a) { log(); throw b; }").find(([, text]) => text.startsWith("if (false)"));
  assert.deepEqual(check, ["check", "if (false) { log(); throw b; }"]);
  assert.deepEqual(changed("if (a) throw b; else c();").at(1)?.[0], "other");
});

test("calls, throws and last words go; what is a flush, a check or a clean-up is known by its name", () => {
  for (const [source, kind] of [
    ["await handle.sync();", "flush"],
    ["await flushFolder(folder);", "flush"],
    ["appendFileSync(file);", "other"],
    ["checkNames(names);", "check"],
    ["signal?.throwIfAborted();", "check"],
    ["void this.link.close();", "clean-up"],
    ["clearTimeout(timer);", "clean-up"],
    ["tell(it);", "other"],
  ] as const)
    assert.deepEqual(changed(source).at(0), [kind, ";"]);
  assert.deepEqual(changed("throw error;"), [["check", ";"]]);
  assert.deepEqual(changed("try { a(); } finally { b(); }").at(1), ["clean-up", "try { a(); } finally {}"]);
});

test("comparisons, numbers, truths, patterns and entries change a little; types and texts do not", () => {
  const cases: Record<string, string[]> = {
    "x = a < (b as 7);": ["x = a <= (b as 7);"],
    "x = a && b;": ["x = a || b;"],
    "x = !a;": ["x = a;"],
    'x = "5";': [],
    "const LIMIT_MS = 500;": ["const LIMIT_MS = 0;"],
    "const MOST_BYTES = 64 * 1024;": ["const MOST_BYTES = 0 * 1024;", "const MOST_BYTES = 64 * 0;"],
    "const MOST = 999;": ["const MOST = 1000;", "const MOST = 998;"],
    "const MOST = 1_000;": ["const MOST = 0;"],
    "x = 5;": ["x = 6;", "x = 4;"],
    "x = /^a{1,64}$/u;": ["x = /^a{1,65}$/u;", "x = /a{1,64}$/u;", "x = /^a{1,64}/u;"],
    "x = [a, b];": ["x = [ b];", "x = [a, ];"],
    "f({ a: b });": [";", "f({  });"],
    "type A = { a: 5 };": [],
  };
  for (const [source, expected] of Object.entries(cases))
    assert.deepEqual(
      changed(source).map(([, text]) => text),
      expected,
    );
});

test("every equivalent that is listed is a mutant of today's lib, once listed, with a reason", () => {
  const listed = equivalents();
  for (const one of listed) {
    assert.ok(one.why.length > 10, `no reason for ${one.file}: ${one.after}`);
    assert.ok(
      mutantsOf(PROGRAM_ROOT, one.file).some((mutant) => isSame(mutant, one)),
      `no longer in ${one.file}: ${one.before}`,
    );
    assert.equal(listed.filter((other) => isSame(one, other)).length, 1, `twice in the list: ${one.before}`);
  }
});

const LIB = `import { spawn } from "node:child_process";
export function least(a: number, b: number): number {
  if (a > 100) throw new Error("too much");
  return a < b ? a : b;
}
export function count(to: number): number {
  let at = 0;
  while (at < to) at += 1;
  return at;
}
export function leave(): void {
  spawn("sleep", ["987"], { detached: true, stdio: "ignore" }).unref();
}
export const unused = () => 1;
export const typed: { a: string } = { a: "" };
`;
const TEST = `import assert from "node:assert/strict";
import { test } from "node:test";
import { count, leave, least } from "../../lib/core/a.ts";
test("all", () => {
  leave();
  assert.equal(least(1, 2), 1);
  assert.equal(least(2, 1), 1);
  assert.equal(count(2), 2);
});
`;

function writeProject(folder: string): string {
  const root = writeFiles(path.join(folder, "root"), {
    "lib/core/a.ts": LIB,
    "test/core/a.test.ts": TEST,
    "test/core/b.test.ts": 'import "../../lib/core/a.ts"; throw new Error("fails as it is");',
    "package.json": '{ "type": "module" }',
    "tsconfig.json": readFileSync(path.join(PROGRAM_ROOT, "tsconfig.json"), "utf8"),
  });
  symlinkSync(path.join(PROGRAM_ROOT, "node_modules"), path.join(root, "node_modules"));
  return root;
}

test("mutants are told killed, stuck and alive; nothing they start is left, and no file is changed", async (t) => {
  const folder = temporaryFolder(t);
  const root = writeProject(folder);
  const copy = new Copy(path.join(folder, "0"), root);
  const quiet = () => {};
  const all = await reaches([copy], path.join(folder, "cache"), quiet);
  assert.deepEqual(all.map(({ file, passed }) => [file, passed]).sort(), [
    ["test/core/a.test.ts", true],
    ["test/core/b.test.ts", false],
  ]);
  const wanted = ["if (false) throw", "return a <= b", "return !(a < b)", "while (false)", "+= 0", "() => 2"];
  const mutants = allMutants(root).filter(({ after }) => wanted.some((text) => after.includes(text)));
  const code = all.find(({ passed }) => passed)?.code ?? {};
  // The second file counts as passing here, but fails without a mutant: its failures say nothing about mutants.
  const outcomes = await tryAll(
    [copy],
    mutants,
    all.map((one) => ({ ...one, passed: true, code })),
    { tell: quiet, slackMs: 2_000 },
  );
  assert.deepEqual(
    outcomes.map(({ verdict, seen, mutant }) => `${verdict} ${seen} ${mutant.kind} ${mutant.after}`),
    [
      'survived 2 check if (false) throw new Error("too much");',
      "killed 2 other return !(a < b) ? a : b;",
      "survived 2 other return a <= b ? a : b;",
      "killed 2 other while (false) at += 1;",
      "timed out 2 other while (at < to) at += 0;",
      "survived 2 other export const unused = () => 2;",
    ],
  );
  assert.equal(readFileSync(path.join(copy.tree, "lib/core/a.ts"), "utf8"), LIB);
  assert.deepEqual(processesIn(folder), []);
});

test("a seed draws the same mutants again, none of them one that the types refuse", (t) => {
  const root = writeProject(temporaryFolder(t));
  const drawn = draw(root, 1, 2);
  assert.equal(drawn.mutants.length, 2);
  assert.deepEqual(draw(root, 1, 2), drawn);
  const typed = allMutants(root).filter(({ before }) => before.includes("typed"));
  assert.deepEqual(draw(root, 1, 1, typed), { mutants: [], refusedByTypes: 1, equivalent: 0 });
});
