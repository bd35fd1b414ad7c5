import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import type { Command } from "../../../lib/cli/base/flags.ts";
import { completionsOf } from "../../../lib/cli/bucket/completion.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const run = async () => 0;
const COMMANDS: readonly Command[] = [
  { name: "job", summary: "Jobs", flags: [], run },
  {
    ...{ name: "job start", summary: "Starts", run, remote: run },
    flags: [
      { name: "bucket-dir", value: "DIR", help: "Where" },
      { name: "only", value: "A,B", choices: ["one", "two", "three"], help: "Some" },
      { name: "kind", value: "KIND", choices: ["deploy", "drift"], short: "k", help: "Of this kind" },
      { name: "key-file", value: "FILE", help: "A key" },
      { name: "force", help: "Again" },
    ],
    operands: [{ name: "what", help: "What", choices: ["now", "later", "odd;one"] }],
  },
  { name: "job stop", summary: "Stops", flags: [], hidden: true, run },
  { name: "runs list", summary: "Lists", flags: [], run },
  {
    name: "runs show",
    summary: "Shows",
    operands: [{ name: "run", help: "Which" }],
    flags: [{ name: "bucket-dir", value: "DIR", help: "Where" }],
    run,
  },
];

const words = (...typed: string[]) => completionsOf(COMMANDS, typed).map(([word]) => word);

test("the words of commands are told with what they do, or with the words behind them", () => {
  assert.deepEqual(completionsOf(COMMANDS, [""]), [
    ["job", "Jobs"],
    ["runs", "list, show"],
  ]);
  assert.deepEqual(completionsOf(COMMANDS, ["r"]), [["runs", "list, show"]]);
  assert.deepEqual(completionsOf(COMMANDS, ["help", "job", ""]), [["start", "Starts"]]);
  assert.deepEqual(completionsOf(COMMANDS, ["runs", "s"]), [["show", "Shows"]]);
  assert.deepEqual([words("help", ""), words("x", ""), words("runs", "x")], [["job", "runs"], [], []]);
  assert.deepEqual(completionsOf(COMMANDS, []), completionsOf(COMMANDS, [""]));
});

test("behind a command its operand comes, or its flags that are not given yet", () => {
  const flags = ["--bucket-dir", "--only", "--kind", "--key-file", "--force"];
  const server = ["--server", "--bucket", "--token-file", "--ca-file", "--totp", "--local"];
  assert.deepEqual(words("job", "start", ""), ["now", "later"]);
  assert.deepEqual(words("job", "start", "l"), ["later"]);
  assert.deepEqual(words("job", "start", "-"), [...flags, ...server]);
  assert.deepEqual(words("job", "start", "now", ""), [...flags, ...server]);
  assert.deepEqual(words("job", "start", "--force", "now", "--f"), []);
  assert.deepEqual(words("job", "start", "-k", "deploy", "--k"), ["--key-file"]);
  assert.deepEqual(words("job", "start", "--kind=deploy", "--k"), ["--key-file"]);
  assert.deepEqual(words("job", "start", "--force", ""), ["now", "later"]);
});

test("the value of a flag is one of its words; a list goes on with what is not in it", () => {
  assert.deepEqual(words("job", "start", "--kind", ""), ["deploy", "drift"]);
  assert.deepEqual(words("job", "start", "-k", "dr"), ["drift"]);
  assert.deepEqual(words("job", "start", "--kind=de"), ["--kind=deploy"]);
  assert.deepEqual(words("job", "start", "--kind", "deploy,"), []);
  assert.deepEqual(words("job", "start", "--only", "t"), ["two", "three"]);
  assert.deepEqual(words("job", "start", "--only", "one,"), ["one,two", "one,three"]);
  assert.deepEqual(words("job", "start", "--only=two,one,t"), ["--only=two,one,three"]);
  assert.deepEqual([words("job", "start", "--key-file", ""), words("job", "start", "--key-file=x")], [[":files"], [":files"]]);
  assert.deepEqual(words("job", "start", "--bucket-dir", "x"), [":folders"]);
});

test("runs are told newest first, at most 50, with the time of each", (t) => {
  const dir = temporaryFolder(t);
  const { runs } = layoutOf(dir);
  const id = (number: number) => `0190a5e8-0000-7000-8000-${String(number).padStart(12, "0")}`;
  for (let number = 0; number < 51; number++) mkdirSync(path.join(runs, id(number)), { recursive: true });
  writeFileSync(path.join(runs, "no-run"), "");
  const found = completionsOf(COMMANDS, ["runs", "show", "--bucket-dir", dir, ""]);
  assert.equal(found.length, 50);
  assert.deepEqual([found[0], found[49]?.[0]], [[id(50), "2024-07-12T07:46:03.392Z"], id(1)]);
});
