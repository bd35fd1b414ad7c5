import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { textOfFile, unifiedDiff } from "../../lib/codec/diff.ts";
import { SEED, seeded } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const lines = (...all: (string | number)[]) => all.map((line) => `${line}\n`).join("");
const upTo = (last: number) => lines(...Array.from({ length: last }, (_, index) => index + 1));

for (const [what, before, after, expected] of [
  ["equal texts", "a\n", "a\n", ""],
  ["a new file", undefined, "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"],
  ["a removed file", "a\n", undefined, "@@ -1 +0,0 @@\n-a\n"],
  ["a changed line", upTo(9), upTo(9).replace("5\n", "five\n"), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"],
  ["a lost newline at the end", "a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"],
  ["two empty texts", undefined, "", ""],
] as const)
  test(`the diff of ${what}`, () => assert.equal(unifiedDiff(before, after), expected));

test("patch turns the one text into the other, over 200 random pairs", (t) => {
  const folder = temporaryFolder(t);
  const wanted = new Map<string, string>();
  let patches = "";
  for (let seed = SEED; seed < SEED + 200; seed++) {
    const random = seeded(seed);
    const next = (below: number) => Math.floor(random() * below);
    const text = () => {
      const all = Array.from({ length: next(30) }, () => "abcd"[next(4)]);
      return all.join("\n") + (next(3) === 0 ? "" : "\n");
    };
    const [before, after] = [text(), text()];
    const diff = unifiedDiff(before, after);
    assert.equal(diff === "", before === after, `seed ${seed}`);
    if (diff === "") continue;
    const name = `seed-${seed}`;
    writeFileSync(path.join(folder, name), before);
    patches += `--- ${name}\n+++ ${name}\n${diff}`;
    wanted.set(name, after);
  }
  const patched = spawnSync("patch", ["-s", "--posix", "-p0"], { cwd: folder, input: patches });
  assert.equal(patched.status, 0, `${patched.stdout}${patched.stderr}\n${patches}`);
  for (const [name, after] of wanted)
    assert.equal(after === "" ? "" : readFileSync(path.join(folder, name), "utf8"), after, name);
});

test("it is as short as that of GNU diff", (t) => {
  const folder = temporaryFolder(t);
  const source = readFileSync(new URL("../../lib/codec/diff.ts", import.meta.url), "utf8");
  const changed = source.replaceAll("CONTEXT", "LEAD").replace(/function range[^}]*\}/, "");
  const files = [path.join(folder, "a"), path.join(folder, "b")] as const;
  writeFileSync(files[0], source);
  writeFileSync(files[1], changed);
  const gnu = spawnSync("diff", ["-u", "--minimal", ...files], { encoding: "utf8" }).stdout;
  const edits = (text: string) => text.split("\n").filter((line) => /^[+-](?![+-])/.test(line)).length;
  assert.equal(edits(unifiedDiff(source, changed)), edits(gnu));
  assert.ok(execFileSync("diff", ["--version"]).length > 0);
});

test("texts that differ everywhere are one replacement, found without a long search", () => {
  const many = (word: string) => lines(...Array.from({ length: 20_000 }, (_, index) => word + index));
  const diff = unifiedDiff(many("a"), many("b"));
  assert.equal(diff.split("\n", 1)[0], "@@ -1,20000 +1,20000 @@");
});

for (const [what, bytes, expected] of [
  ["text", Buffer.from("żółć\n"), "żółć\n"],
  ["a NUL", Buffer.from("a\0b"), undefined],
  ["bytes that are no UTF-8", Buffer.from([0xc3, 0x28]), undefined],
  ["nothing", Buffer.alloc(0), ""],
] as const)
  test(`the text of ${what}`, () => assert.equal(textOfFile(bytes), expected));
