import assert from "node:assert/strict";
import { test } from "node:test";
import { MOST_FILES, measure, scriptsOf } from "../../scripts/measure.ts";

/** What the house promises of lib: small enough that one person reads all of it. */
const MOST = { codeLines: 28_000, files: 315, linesOfFile: 350, linesOfFunction: 60, parameters: 6 };

const lib = measure(scriptsOf("lib"));

test("lib stays as small as it is promised: code lines, files, and no file or function too long", () => {
  assert.ok(lib.codeLines <= MOST.codeLines, `${lib.codeLines} code lines, at most ${MOST.codeLines}`);
  assert.ok(lib.files <= MOST.files, `${lib.files} files, at most ${MOST.files}`);
  assert.ok(lib.fileLines.max <= MOST.linesOfFile, `a file of ${lib.fileLines.max} lines`);
  assert.ok(lib.functionLines.max <= MOST.linesOfFunction, `a function of ${lib.functionLines.max} lines`);
  assert.ok(lib.parameters.max <= MOST.parameters, `a function with ${lib.parameters.max} parameters`);
});

test("lib has no import cycle and no crowded room", () => {
  assert.deepEqual(lib.cycles, []);
  assert.deepEqual(lib.crowded, []);
});

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
  assert.deepEqual(found.functionLines, { median: 3, p90: 7, max: 7 });
  assert.deepEqual(found.parameters, { median: 0, p90: 2, max: 2 });
  assert.deepEqual(found.imports, { median: 1, p90: 1, max: 1 });
  assert.deepEqual(found.cycles, [["lib/a/a.ts", "lib/a/b.ts", "lib/a/a.ts"]]);
});

test("measure() finds names that more than two files define, and crowded rooms", () => {
  const texts = [
    "const take = 1;",
    "export function take() {}",
    "type take = 1;\ninterface Other {}",
    "interface Other {}",
  ];
  const sources = texts.map((text, index) => ({ file: `lib/a/${index}.ts`, text }));
  assert.deepEqual(measure(sources).sharedNames, [{ name: "take", files: 3 }]);
  const many = Array.from({ length: MOST_FILES + 1 }, (_, index) => ({ file: `lib/b/${index}.ts`, text: "" }));
  assert.deepEqual(measure([...sources, ...many]).crowded, ["lib/b"]);
});
