import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Command,
  commandOf,
  FOREIGN_COMMANDS,
  findCommand,
  flagList,
  flagNumber,
  groupNamed,
  parseFlags,
  serverFlags,
  whereElse,
  withoutServerVariables,
} from "../../../lib/cli/base/flags.ts";
import { commandHelp } from "../../../lib/cli/base/help.ts";
import { breakGlassOf, brokenGlass, startingOf, WAIT_FLAG } from "../../../lib/cli/base/start-flags.ts";
import { jsonText } from "../../../lib/cli/base/terminal.ts";

const run = async () => 0;
const plain: Command = {
  name: "look",
  summary: "Looks",
  flags: [
    { name: "jobs", value: "A,B", help: "Only these" },
    { name: "deep", help: "Further down" },
    WAIT_FLAG,
    { name: "break-glass", value: "REASON", help: "Why" },
  ],
  run,
};
const given = (...args: string[]) => parseFlags(plain, args);
const usage = (message: RegExp | string) => ({ code: "usage", message });

test("a list has commas between its names, and blanks around them are none of theirs", () => {
  assert.equal(flagList(given(), "jobs"), undefined);
  assert.deepEqual(flagList(given("--jobs", "a, b ,c"), "jobs"), ["a", "b", "c"]);
  for (const text of ["", ",", "a,", ",a", "a, ,b"])
    assert.throws(() => flagList(given(`--jobs=${text}`), "jobs"), usage("--jobs: expected names with commas between them"));
});

test("a whole number keeps to its bounds, and has at most nine digits", () => {
  const number = (text: string, bounds?: [number, number]) => flagNumber(given(`--jobs=${text}`), "jobs", bounds);
  assert.equal(flagNumber(given(), "jobs"), undefined);
  assert.deepEqual([number("0"), number("999999999"), number("007")], [0, 999_999_999, 7]);
  assert.deepEqual([number("3", [3, 5]), number("5", [3, 5])], [3, 5]);
  for (const text of ["2", "6", "4x", "x4", "-4", "4.0", ""])
    assert.throws(() => number(text, [3, 5]), usage(`--jobs: expected a whole number from 3 to 5, found "${text}"`));
  for (const text of ["1000000000", "x1", "1x", "1e3"])
    assert.throws(() => number(text), usage(`--jobs: expected a whole number, found "${text}"`));
  assert.throws(() => number("1000000000", [0, 9e9]), usage(/^--jobs: expected a whole number from 0 to 9000000000/));
});

test("variables of a server and of its clients are left out, and no others", () => {
  const kept = { PATH: "1", OPS_SERVE: "2", OPS_SERVERS: "3", MY_OPS_SERVER: "4", OPS_BUCKET_DIR: "5" };
  const left = { OPS_SERVER: "6", OPS_BUCKET: "7", OPS_SERVE_TOKEN: "8", OPS_SERVE_: "9" };
  assert.deepEqual(withoutServerVariables({ ...kept, ...left }), kept);
});

test("a command has the flags of a server where it works on one, and `--local` where it also works here", () => {
  const remote = async () => 0;
  const there: Command = { ...plain, run: undefined, remote };
  const own: Command = { ...plain, remote, flags: [{ name: "bucket", value: "NAMES", help: "Of these" }] };
  const names = (command: Command) => serverFlags(command).map(({ name }) => name);
  const all = ["server", "bucket", "token-file", "ca-file", "totp", "local"];
  assert.deepEqual([names(plain), whereElse(plain)], [[], undefined]);
  assert.deepEqual([names({ ...plain, hereOnly: true }), whereElse({ ...plain, hereOnly: true })], [["local"], "Only here"]);
  assert.deepEqual([names({ ...plain, remote }), whereElse({ ...plain, remote })], [all, "Also on a server"]);
  assert.deepEqual([names(there), whereElse(there)], [all.slice(0, -1), "Only on a server"]);
  assert.deepEqual(
    names(own),
    all.filter((name) => name !== "bucket"),
  );
  assert.deepEqual([...parseFlags(there, ["--server", "http://s"]).values], [["server", "http://s"]]);
  assert.throws(() => parseFlags(there, ["--local"]), usage(/^ops look has no flag "--local"/));
});

test("a command of a table has `--json`, and `--break-glass` where it changes a bucket, unless it has its own", () => {
  const names = (row: Parameters<typeof commandOf>[0]) =>
    commandOf(row).flags.map(({ name, help }) => `${name} ${help.slice(0, 7)}`);
  const row = { name: "x", summary: "X", run };
  assert.deepEqual(names(row), ["json Print J"]);
  assert.deepEqual(names({ ...row, noJson: true }), []);
  assert.deepEqual(names({ ...row, changes: true }), ["json Print J", "break-glass As an a"]);
  assert.deepEqual(names({ ...row, changes: () => false, noJson: true }), ["break-glass As an a"]);
  const flags = ["json", "break-glass"].map((name) => ({ name, help: "Its own" }));
  assert.deepEqual(names({ ...row, changes: true, flags }), ["json Its own", "break-glass Its own"]);
});

test("a value that may be left out is given with `=`, and a word behind the flag that looks like one is told", () => {
  const { values, switches } = given("--wait=5m");
  assert.deepEqual([[...values], [...switches]], [[["wait", "5m"]], ["wait"]]);
  assert.deepEqual([...given("--wait").switches], ["wait"]);
  const placed = { ...plain, operands: [{ name: "what", help: "What", optional: true }] };
  for (const word of ["5m", "90s", "1h30m", "http://s", "https://s"])
    assert.throws(() => parseFlags(placed, ["--wait", word]), usage(`write --wait=${word} (see \`ops look --help\`)`));
  for (const args of [
    ["--wait", "web5m"],
    ["--wait", "5"],
    ["--deep", "5m"],
    ["5m", "--wait"],
    ["--wait", "--deep", "5m"],
  ])
    assert.equal(parseFlags(placed, args).operands.length, 1, args.join(" "));
});

test("a word behind a command without operands is one of its group, where it has one", () => {
  const list: Command = { ...plain, name: "look list" };
  const commands = [plain, list];
  assert.deepEqual(findCommand([plain], ["look", "now"]), { command: plain, rest: ["now"] });
  assert.deepEqual(findCommand(commands, ["look", "--deep"]), { command: plain, rest: ["--deep"] });
  const message = /^"look lst" is not a command; did you mean look list\? \(see `ops help look`\)$/;
  assert.throws(() => findCommand(commands, ["look", "lst"]), usage(message));
  assert.deepEqual([groupNamed(commands, []), groupNamed(commands, ["look"])], [[], [list]]);
});

test("a start says how long it waits, at most a day, and why it goes past what holds it back", async () => {
  const of = async (...args: string[]) => await startingOf(given(...args));
  const nothing = { view: undefined, waitMs: undefined, breakGlass: undefined, isDetached: false };
  assert.deepEqual(await of(), nothing);
  assert.deepEqual(await of("--wait"), { ...nothing, waitMs: 86_400_000 });
  assert.deepEqual(await of("--wait=24h", "--break-glass", "fire"), { ...nothing, waitMs: 86_400_000, breakGlass: "fire" });
  assert.equal((await of("--wait=1h30m")).waitMs, 5_400_000);
  const asJson = await startingOf({ ...given(), switches: new Set(["json"]) });
  assert.deepEqual(asJson.view, { show: jsonText, meanwhile: "aside" });
  for (const text of ["24h1ms", "soon", "5", ""]) {
    const message = `--wait: expected a time up to 24h, such as 5m, 1h30m or 90s, found "${text}"`;
    await assert.rejects(of(`--wait=${text}`), usage(message));
  }
  assert.equal(breakGlassOf(given("--break-glass", "x".repeat(200))), "x".repeat(200));
  for (const reason of ["x".repeat(201), "two\nlines", " ", ""])
    assert.throws(() => breakGlassOf(given(`--break-glass=${reason}`)), usage(/^--break-glass: expected a reason, one line of/));
  assert.equal(
    brokenGlass("0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70", "fire"),
    "BREAK GLASS: run 8a3c5e70 went past what holds runs back: fire\n",
  );
});

test("words of other tools stand for commands of ops", () => {
  const meant: [words: string, command: string][] = [
    ["alloc jobs job-list", "cat allocations, cat jobs, cat jobs"],
    ["cancel retry history", "runs cancel, runs retry, runs list"],
    ["diff lint up releases undo", "drift, check, deploy, revisions list, revisions rollback"],
    ["job-logs key top workers", "logs, ssh-key show, worker sysstat, cat workers"],
    ["kv-set secret secrets", "kv set-secret, kv set-secret, cat kv"],
  ];
  for (const [words, commands] of meant)
    assert.equal(
      words
        .split(" ")
        .map((word) => FOREIGN_COMMANDS[word.replace("-", " ")])
        .join(", "),
      commands,
    );
});

test("help fills 80 columns, of which the second has at least 30, and names a server where a command works on one", () => {
  for (const [width, room] of [
    [20, 56],
    [45, 31],
    [47, 30],
    [60, 30],
  ] as const) {
    const name = "x".repeat(width - 2);
    const command = { ...plain, flags: [{ name, help: `${"a".repeat(room - 2)} b ${"c".repeat(room - 1)} d` }] };
    const indent = " ".repeat(width + 4);
    assert.deepEqual(commandHelp({ ...command, summary: `${"a".repeat(78)} b c` }).split("\n"), [
      ...[`${"a".repeat(78)} b`, "c", "", "Usage: ops look [flags]", ""],
      ...[`  --${name}  ${"a".repeat(room - 2)} b`, `${indent}${"c".repeat(room - 1)}`, `${indent}d`],
      ...[`  ${"-h, --help".padEnd(width)}  Show this help`, ""],
    ]);
  }
  const there = commandHelp({ ...plain, hereOnly: true });
  assert.ok(there.endsWith("\n\nOnly here:\n  --local  Work here, whatever names a server\n"), there);
  const grouped = commandHelp(plain, [{ ...plain, name: "look list" }]);
  assert.ok(grouped.endsWith("\n\n  look list  Looks\n\nops <command> --help tells more about one of them.\n"), grouped);
});
