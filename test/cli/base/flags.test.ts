import assert from "node:assert/strict";
import { test } from "node:test";
import { type Command, commandNamed, FOREIGN_COMMANDS, findCommand, parseFlags } from "../../../lib/cli/base/flags.ts";
import { commandHelp, programHelp } from "../../../lib/cli/base/help.ts";
import { COMMANDS } from "../../../lib/cli/main.ts";

const deploy: Command = {
  name: "deploy",
  summary: "Deploys",
  flags: [
    { name: "jobs", value: "A,B", help: "Only these" },
    { name: "force", short: "f", help: "Again" },
  ],
  run: async () => 0,
};
const healthCheck: Command = { ...deploy, name: "health_check" };
const push: Command = { ...deploy, name: "push", operands: [{ name: "base_url", help: "Where" }] };
const rollback: Command = { ...push, name: "push rollback" };
const commands = [deploy, healthCheck, push, rollback];

test("values, switches, short forms, operands and -- are read", () => {
  const { operands, values, switches } = parseFlags(push, ["--jobs=a=b", "-f", "--", "--jobs"]);
  assert.deepEqual([operands, [...values], [...switches]], [["--jobs"], [["jobs", "a=b"]], ["force"]]);
  assert.equal(parseFlags(push, ["http://x", "--jobs", "-"]).values.get("jobs"), "-");
});

test("a flag with few words takes these alone, in any case, with dashes or underscores", () => {
  const flags = [
    { name: "kind", value: "KIND", choices: ["deploy", "health_check"], help: "Of this kind" },
    { name: "only", value: "A,B", choices: ["one", "two"], help: "Only these" },
    { name: "template", value: "NAME", choices: ["service"], isOpen: true, help: "A folder, or service" },
  ] as const;
  const values = (...args: string[]) => Object.fromEntries(parseFlags({ ...deploy, flags }, args).values);
  const given = values("--kind", "Health-Check", "--only", "Two, one", "--template", "My-Folder");
  assert.deepEqual(given, { kind: "health_check", only: "two,one", template: "My-Folder" });
  const refused =
    /^--kind: expected one of deploy, health_check, found "deplyo"; did you mean deploy\? \(see `ops deploy --help`\)$/;
  assert.throws(() => values("--kind", "deplyo"), { code: "usage", message: refused });
  assert.throws(() => values("--only", "one,three"), { message: /^--only: expected one of one, two, found "three" \(/ });
  assert.throws(() => values("--only", ""), { message: /^--only: expected one of one, two, found ""/ });
});

test("the longest name wins; dashes and underscores are the same in command names", () => {
  assert.equal(findCommand(commands, ["push", "rollback", "x"]).command, rollback);
  assert.deepEqual(findCommand(commands, ["push", "rollback", "x"]).rest, ["x"]);
  assert.equal(findCommand(commands, ["push", "x"]).command, push);
  assert.equal(findCommand(commands, ["health-check"]).command, healthCheck);
});

test("what is mistyped is refused with the nearest right word and where to read on", () => {
  const cases: [work: () => unknown, message: RegExp][] = [
    [() => findCommand(commands, ["deplyo"]), /^"deplyo" is not a command; did you mean deploy\? \(see `ops help`\)$/],
    [() => findCommand(commands, ["zzz"]), /^"zzz" is not a command \(see `ops help`\)$/],
    [
      () => findCommand(commands, ["--json", "push"]),
      /^"--json" stands before the command: flags come after it \(see `ops help`\)$/,
    ],
    [() => findCommand(commands, ["Ps"]), /^"Ps" is not a command; did you mean cat allocations\?/],
    [() => findCommand(COMMANDS, ["node", "status"]), /^"node" is not a command; did you mean cat workers\?/],
    [() => findCommand(COMMANDS, ["worker", "list"]), /^"worker list" is not a command; did you mean cat workers\?/],
    [() => findCommand(COMMANDS, ["kv", "get"]), /^"kv get" is not a command; did you mean cat kv get\?/],
    [() => findCommand(COMMANDS, ["restart", "web"]), /^"restart" is not a command; did you mean job restart\?/],
    [() => findCommand(COMMANDS, ["constructor"]), /^"constructor" is not a command \(/],
    [
      () => findCommand(COMMANDS, ["cat", "wrokers"]),
      /^"cat wrokers" is not a command; did you mean cat workers\? \(see `ops help cat`\)$/,
    ],
    [
      () => findCommand(COMMANDS, ["runs", "lst"]),
      /^"runs lst" is not a command; did you mean runs list\? \(see `ops help runs`\)$/,
    ],
    [() => parseFlags(deploy, ["--forse"]), /ops deploy has no flag "--forse"; did you mean --force\?/],
    [() => parseFlags(deploy, ["--force=yes"]), /^--force takes no value/],
    [() => parseFlags(deploy, ["--jobs"]), /^--jobs needs a value: A,B/],
    [() => parseFlags(deploy, ["--jobs", "a", "--jobs", "b"]), /^--jobs is given twice/],
    [() => parseFlags(deploy, ["now"]), /^"now" is not expected here/],
    [() => parseFlags(push, []), /^base_url is missing/],
  ];
  for (const [work, message] of cases) assert.throws(work, { code: "usage", message });
});

test("help names every flag, and the program's help every command that is not hidden", () => {
  assert.match(commandHelp(push), /Usage: ops push <base_url> \[flags\]\n\n {2}<base_url> {2,}Where\n/);
  assert.match(commandHelp(deploy), /-f, --force +Again/);
  assert.deepEqual([...parseFlags(push, ["-h"]).switches], ["help"]);
  assert.doesNotMatch(programHelp([deploy, { ...push, hidden: true }]), /push/);
});

test("the program's help has each first word once, below a heading, with the words that may follow", () => {
  const text = programHelp(COMMANDS);
  const shown = [...text.matchAll(/^ {2}(\S+) {2}/gm)].map(([, word]) => word);
  const words = new Set(COMMANDS.filter(({ hidden }) => !hidden).map(({ name }) => name.split(" ")[0]));
  assert.deepEqual(shown.toSorted(), [...words].toSorted());
  assert.match(text, /^Build and deploy\n {2}build +Turn the source into /m);
  assert.match(text, /^ {2}worker +trust, facts, uptime, sysstat$/m);
  assert.match(text, /^ {2}tokens +Show the tokens [^;]+;\s+create, revoke$/m);
});

test("each word that people bring means a command that there is", () => {
  const usual = "apply list ls plan ps restart revert rollback ssh start stop tail validate".split(" ");
  for (const word of usual) assert.ok(word in FOREIGN_COMMANDS, word);
  for (const meant of Object.values(FOREIGN_COMMANDS)) assert.ok(commandNamed(COMMANDS, meant.split(" ")), meant);
});

test("an operand may take all words that follow, which are no flags behind --", () => {
  const exec: Command = {
    ...deploy,
    operands: [
      { name: "worker", help: "Where" },
      { name: "command", help: "What", many: true },
    ],
  };
  const { operands, switches } = parseFlags(exec, ["-f", "w1", "--", "ls", "-l", "--force", "--help"]);
  assert.deepEqual([operands, [...switches]], [["w1", "ls", "-l", "--force", "--help"], ["force"]]);
  assert.throws(() => parseFlags(exec, ["w1"]), { message: /^command is missing/ });
  assert.match(commandHelp(exec), /Usage: ops deploy \[flags\] <worker> -- <command…>\n/);
});

test("the help of a command that is also a group lists the group", () => {
  assert.match(commandHelp(push, [rollback]), /\n {2}push rollback {2}Deploys\n/);
});

test("help fits into 80 columns", () => {
  for (const command of COMMANDS.filter((one) => !one.hidden))
    for (const line of commandHelp(command).split("\n")) assert.ok(line.length <= 80 || line.startsWith("Usage: "), line);
  for (const line of programHelp(COMMANDS).split("\n")) assert.ok(line.length <= 80, line);
});

test("a retry of job control needs no job: the run that it names says it", () => {
  const control = COMMANDS.filter(({ name, flags }) => /^(job |health_)/.test(name) && flags.some((one) => one.name === "retry"));
  assert.equal(control.length, 7);
  for (const command of control) assert.equal(parseFlags(command, ["--retry", "x"]).values.get("retry"), "x");
});
