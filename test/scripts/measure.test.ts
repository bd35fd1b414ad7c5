import assert from "node:assert/strict";
import { test } from "node:test";
import { MOST, measure, scriptsOf, sentBytes } from "../../scripts/measure.ts";

/** The bounds of lib and ui: one person can read all of it. README.md names them. */
const PROMISED = {
  lib: { codeLines: 44_400, files: 380, linesOfFile: 350 },
  ui: { codeLines: 7_950, files: 74, linesOfFile: 350 },
};
/** Everything of the console as it is sent. */
const SENT_BYTES = 96_800;

const lib = measure(scriptsOf("lib"));
const ui = measure(scriptsOf("ui"));

for (const [folder, found] of Object.entries({ lib, ui }))
  test(`${folder} stays as small as it is promised: files, code lines, lines of a file`, () => {
    const most = PROMISED[folder as keyof typeof PROMISED];
    assert.ok(found.files <= most.files, `${found.files} files, at most ${most.files}`);
    assert.ok(found.codeLines <= most.codeLines, `${found.codeLines} code lines, at most ${most.codeLines}`);
    assert.ok(found.fileLines.max <= most.linesOfFile, `a file of ${found.fileLines.max} lines`);
  });

test("the console as it is sent stays as small as it is promised", async () => {
  const bytes = await sentBytes();
  assert.ok(bytes <= SENT_BYTES, `${bytes} bytes, at most ${SENT_BYTES}`);
});

for (const [folder, found] of Object.entries({ lib, ui })) {
  test(`a name of the top level is defined in at most two files of ${folder}`, () => {
    assert.deepEqual(found.sharedNames, []);
  });

  test(`${folder} has no import cycle, no crowded room, and no function that is too long or has too many parameters`, () => {
    assert.deepEqual(found.cycles, []);
    assert.deepEqual(found.crowded, []);
    assert.deepEqual(found.longFunctions, []);
    assert.deepEqual(found.wideFunctions, []);
  });
}

const ONE = `// A comment.
import { b } from "./b.ts";

/**
 * A docstring.
 */
export function one(a: number, c: string): string {
  const inner = () => {
    return c.repeat(a);
  };

  return inner() + b((x: number) => x);
}
`;

test("measure() counts code lines, functions with a block, parameters and imports", () => {
  const found = measure([
    { file: "lib/a/a.ts", text: ONE },
    { file: "lib/a/b.ts", text: 'import { one } from "./a.ts";\nexport const b = one;\n' },
  ]);
  assert.equal(found.files, 2);
  assert.equal(found.codeLines, 7 + 2);
  assert.deepEqual(found.fileLines, { median: 2, p90: 13, max: 13 });
  assert.deepEqual(found.functionLines, { median: 3, p90: 4, max: 4 });
  assert.deepEqual(found.parameters, { median: 0, p90: 2, max: 2 });
  assert.deepEqual(found.imports, { median: 1, p90: 1, max: 1 });
  assert.deepEqual(found.cycles, [["lib/a/a.ts", "lib/a/b.ts", "lib/a/a.ts"]]);
});

test("measure() finds names that more than two files define, and crowded rooms", () => {
  const texts = ["const take = 1;", "export function take() {}", "type take = 1;\ninterface Other {}", "interface Other {}"];
  const sources = texts.map((text, index) => ({ file: `lib/a/${index}.ts`, text }));
  assert.deepEqual(measure(sources).sharedNames, [{ name: "take", files: 3 }]);
  const many = Array.from({ length: MOST.files + 1 }, (_, index) => ({ file: `lib/b/${index}.ts`, text: "" }));
  assert.deepEqual(measure([...sources, ...many]).crowded, ["lib/b"]);
});

test("measure() finds functions that are too long, or have too many parameters", () => {
  const text = `\nfunction a(b, c, d, e, f) {\n${"  b();\n".repeat(MOST.functionLines)}}\nfunction g(b, c, d, e) {}\n`;
  const { longFunctions, wideFunctions } = measure([{ file: "lib/a/a.ts", text }]);
  assert.deepEqual([longFunctions, wideFunctions], [["lib/a/a.ts:2"], ["lib/a/a.ts:2"]]);
});
