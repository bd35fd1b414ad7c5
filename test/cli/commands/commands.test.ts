import assert from "node:assert/strict";
import { test } from "node:test";
import { COMMANDS } from "../../../lib/cli/main.ts";
import { parsed } from "../../helpers/printed.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const named = (name: string) => COMMANDS.find((one) => one.name === name) ?? assert.fail(name);
const namesOf = (isMeant: (command: (typeof COMMANDS)[number]) => boolean) => COMMANDS.filter(isMeant).map(({ name }) => name);

test("the commands that change a bucket, which below the root of a server is written into the audit", () => {
  const changing = [
    ...["init", "build", "worker trust", "run_command", "exec", "job start", "job stop", "job restart", "job reload", "job run"],
    ...["job create", "metrics init", "hooks", "job_command", "runs retry", "ssh-key set", "ssh-key create", "ssh-key delete"],
    ...["kv set-secret", "kv delete-secret", "kv import", "gc", "snapshot create", "snapshot restore", "snapshot delete"],
    ...["notify set-secret", "notify delete-secret", "kv rekey", "ca rotate", "ssh-key rotate", "ca import"],
  ];
  assert.deepEqual(namesOf(({ changes }) => changes === true).toSorted(), changing.toSorted());
  const byInput: [name: string, switches: string, changes: boolean][] = [
    ["deploy", "", true],
    ["deploy", "dry-run", false],
    ["deploy", "dry-run build", true],
    ["deploy", "dry-run with-hooks", true],
    ["worker facts", "", false],
    ["worker facts", "generate-workers", true],
    ["worker facts", "generate-workers dry-run", false],
    ["fmt", "", true],
    ["fmt", "check", false],
    ["migrate", "", false],
    ["migrate", "write", true],
  ];
  for (const [name, switches, isChange] of byInput) {
    const { changes } = named(name);
    assert.ok(typeof changes === "function", name);
    assert.equal(changes(parsed({}, switches.split(" "))), isChange, `${name} ${switches}`);
  }
  const dependent = namesOf(({ changes }) => typeof changes === "function");
  assert.deepEqual(dependent.toSorted(), [...new Set(byInput.map(([name]) => name))].toSorted());
});

test("older spellings and what the program itself starts are in no help", () => {
  assert.deepEqual(
    namesOf(({ hidden }) => hidden === true),
    ["job_command", "cat job_ports", "worker run", "completion words"],
  );
});

test("what takes one of a few words names them all", () => {
  const choices = (name: string, what: string) => {
    const { flags, operands = [] } = named(name);
    const found = [...flags, ...operands].find((one) => one.name === what);
    return `${found?.choices?.join(" ")}${found && "isOpen" in found ? " …" : ""}`;
  };
  const outcomes = "unknown changed ok failed unreachable cancelled";
  const states = "new update promoted stop disabled removed unsettled";
  for (const [name, what, words] of [
    ["job create", "template", "service systemd compose …"],
    ["runs list", "status", "running succeeded failed cancelled"],
    ["runs", "status", "running succeeded failed cancelled"],
    ["cat allocations", "outcome", outcomes],
    ["cat deployments", "outcome", outcomes],
    ["cat allocations", "state", states],
    ["cat deployments", "state", states],
    ["logs", "format", "human raw"],
    ["server", "log-format", "text json"],
    ["buckets set", "approvals", "0 1 2"],
    ["schema", "file", "manifest workers disabled schedules notify"],
    ["open", "what", "bucket run job worker revision"],
    ["completion", "shell", "bash zsh fish"],
  ] as const)
    assert.equal(choices(name, what), words, `${name} ${what}`);
});

test("a start here is refused where its flags do not go together, before anything is done", async (t) => {
  const dir = temporaryFolder(t);
  const refused = async (name: string, values: Record<string, string>, switches: string[], message: RegExp) => {
    const { run } = named(name);
    const input = parsed({ "bucket-dir": dir, ...values }, switches, []);
    await assert.rejects(async () => await run?.(input), { code: "usage", message }, name);
  };
  await refused("build", {}, ["detach"], /^--detach goes with --server: a run here ends with its command$/);
  await refused("deploy", { retry: "0190a5e8", jobs: "web" }, [], /^--retry goes alone: all other parameters are those of/);
  await refused("deploy", { jobs: "a,,b" }, [], /^--jobs: expected names with commas between them$/);
  await refused("worker uptime", { concurrency: "x" }, [], /^--concurrency: expected a whole number, found "x"$/);
  await refused("worker uptime", { concurrency: "0" }, [], /^--concurrency: .* \(see `ops worker uptime --help`\)$/);
});
