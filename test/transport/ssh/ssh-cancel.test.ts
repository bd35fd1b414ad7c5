import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { sleep } from "../../../lib/core/async.ts";
import { signalProcess } from "../../../lib/core/process.ts";
import { runTarget } from "../../../lib/transport/ask/runner.ts";
import type { Transport } from "../../../lib/transport/base/transport.ts";
import { syncTree } from "../../../lib/transport/files/sync.ts";
import { SSH_PLACES } from "../../../lib/transport/ssh/folder.ts";
import { patience } from "../../../scripts/patience.ts";
import type { TargetRun } from "../../fixtures/run-target.ts";
import { BUCKET_ID, descendants, SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { installJob, syncFile } from "../../helpers/worker.ts";

const CLIENT = fileURLToPath(new URL("../../fixtures/run-target.ts", import.meta.url));

/** What was cancelled, and what became of it. */
const scripts: [string, string, string][] = [
  ["a command with children", "echo begun; sleep 300 & sleep 300", "stopped"],
  ["a command that unwinds", "trap 'sleep 0.1; exit 0' TERM; echo begun; sleep 300 & wait", "stopped"],
  ["a command that ignores TERM", "trap '' TERM; echo begun; while :; do sleep 300; done", "killed"],
];

for (const [what, script, receipt] of scripts)
  test(`CP-135 ${what} that is cancelled ends on the worker, and the receipt says ${receipt}`, async (t) => {
    const fleet = await SshFleet.start(t);
    const one = await fleet.one(t);
    const stop = new AbortController();
    const outcome = await one.script(script, { signal: stop.signal, onLine: () => stop.abort() });
    assert.deepEqual([outcome.reason, outcome.receipt, outcome.stdout], ["cancelled", receipt, "begun\n"]);
    assert.deepEqual(fleet.processes, []);
    assert.equal(getEventListeners(stop.signal, "abort").length, 0);
    assert.equal((await one.script("echo on")).stdout, "on\n", "the connection goes on");
  });

test("CP-136 what left its process group on purpose is not followed", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const stop = new AbortController();
  const script = "setsid sleep 300 >/dev/null 2>&1 & sleep 0.1; echo $!; sleep 300";
  const outcome = await one.script(script, { signal: stop.signal, onLine: () => stop.abort() });
  assert.equal(outcome.receipt, "stopped");
  const daemon = Number(outcome.stdout);
  assert.deepEqual(fleet.processes, [daemon]);
  signalProcess(daemon, "SIGKILL");
});

test("many commands on many workers are cancelled at once, each with its receipt, and none is left", async (t) => {
  const hosts = Array.from({ length: 10 }, (_, index) => `127.0.1.${index + 1}`);
  const fleet = await SshFleet.start(t, { hosts });
  const { transports } = await fleet.connect(t);
  const stop = new AbortController();
  const begun: string[] = [];
  const options = { signal: stop.signal, onLine: (line: string) => begun.push(line) };
  const running = transports.flatMap((one) => [
    one.script("echo begun; sleep 300 & sleep 300", options),
    one.script("echo begun; sleep 300 & sleep 300", options),
    one.script("echo begun; sleep 300", { ...options, isShort: true }),
  ]);
  await until("all have begun", () => begun.length === 30);
  stop.abort();
  const outcomes = await Promise.all(running);
  assert.deepEqual(
    outcomes.map(({ reason, receipt }) => `${reason} ${receipt}`),
    outcomes.map(() => "cancelled stopped"),
  );
  assert.deepEqual(fleet.processes, []);
});

test("a command that has just ended when it is cancelled is already gone", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const stop = new AbortController();
  const outcome = await one.script("echo $$; exec sleep 300", {
    signal: stop.signal,
    onLine: (line, stream) => {
      if (stream === "stderr") return;
      // Its end is not known here yet when the cancel comes.
      fleet.freeze();
      signalProcess(Number(line), "SIGKILL");
      stop.abort();
      void sleep(200).then(() => fleet.freeze("SIGCONT"));
    },
  });
  assert.deepEqual([outcome.reason, outcome.receipt], ["cancelled", "gone"]);
});

test("a worker that does not answer leaves an unknown receipt, within the time a cancel has", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const stop = new AbortController();
  const began = performance.now();
  const outcome = await one.script("echo begun; sleep 300", {
    signal: stop.signal,
    onLine: () => {
      fleet.freeze();
      stop.abort();
    },
  });
  assert.deepEqual([outcome.reason, outcome.receipt], ["cancelled", "unreachable"]);
  assert.ok(performance.now() - began < patience(10_000));
  fleet.freeze("SIGCONT");
});

test("CP-133 a cancel ends every wait: for the connection, for a place, and for the kept shell", async (t) => {
  const fleet = await SshFleet.start(t);
  const { transports } = await fleet.connect(t, { concurrency: 1 });
  const [one, two] = transports as [Transport, Transport];
  await one.script("true");
  const hold = new AbortController();
  let begun = false;
  const onLine = () => {
    begun = true;
  };
  const holding = one.script("echo begun; sleep 300", { signal: hold.signal, onLine });
  await until("the only place is taken", () => begun);
  const stop = new AbortController();
  const waiting = [
    one.script("true", { signal: stop.signal }),
    one.script("true", { signal: stop.signal, isShort: true }),
    two.script("true", { signal: stop.signal }),
  ];
  await sleep(100);
  stop.abort();
  for (const one of await Promise.allSettled(waiting)) assert.equal(one.status === "rejected" && one.reason.code, "cancelled");
  await assert.rejects(one.script("true", { signal: stop.signal }), { code: "cancelled" });
  hold.abort();
  assert.equal((await holding).reason, "cancelled");
});

test("CP-133 a cancel does not wait for a shell that does not open", async (t) => {
  const flag = path.join(temporaryFolder(t), "slow");
  const fleet = await SshFleet.start(t, { login: `[ ! -f '${flag}' ] || sleep 300; exec sh -c "$SSH_ORIGINAL_COMMAND"` });
  const one = await fleet.one(t);
  const stuck = await one.script("sleep 300", { timeoutMs: 50, isShort: true });
  assert.deepEqual([stuck.reason, stuck.receipt], ["timeout", "stopped"], "from now on there is no kept shell");
  writeFileSync(flag, "");
  const stop = new AbortController();
  const began = performance.now();
  const waiting = one.script("true", { isShort: true, signal: stop.signal });
  await sleep(100);
  stop.abort();
  assert.deepEqual([(await waiting).reason, (await waiting).receipt], ["cancelled", "gone"]);
  assert.ok(performance.now() - began < patience(5_000));
});

test("a target that never ends is out of time with a receipt, and its lock is free again", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const makefile = "start:\n\t@echo begun\n\t@sleep 300\nstatus:\n\t@echo fine\n";
  await installJob({ transport: one, launcher: fleet.launcher, folder: one.folder }, "db", makefile);
  const order = { job: "db", runId: "r1", timeoutMs: 600 };
  const outcome = await runTarget(one, { ...order, target: "start" });
  assert.deepEqual([outcome.reason, outcome.receipt], ["timeout", "stopped"]);
  assert.match(outcome.stdout, /^begun\n/);
  assert.deepEqual(fleet.processes, []);
  assert.equal((await runTarget(one, { ...order, target: "status", timeoutMs: patience(20_000) })).stdout, "fine\n");
});

test("a target that never ends, whose client was killed, is ended by the next run that knows that one to be over", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const makefile = "start:\n\t@echo begun\n\t@sleep 300\nstatus:\n\t@echo fine\n";
  await installJob({ transport: one, launcher: fleet.launcher, folder: one.folder }, "db", makefile);
  const order = { job: "db", target: "start", runId: "killed", timeoutMs: 600_000 };
  const workers = fleet.workers.slice(0, 1);
  const what: TargetRun = { settings: fleet.settings(), workers, bucketId: BUCKET_ID, order };
  const client = spawn(process.execPath, [CLIENT, JSON.stringify(what)], { stdio: ["ignore", "pipe", "inherit"] });
  await once(client.stdout, "data");
  const masters = descendants(client.pid as number);
  client.kill("SIGKILL");
  await once(client, "exit");
  // As a server does with the groups of a run that died.
  for (const pid of masters) signalProcess(pid, "SIGKILL");
  assert.ok(fleet.processes.length > 0, "the target goes on without its client");
  const next = { ...order, target: "status", runId: "next", timeoutMs: patience(30_000) };
  const outcome = await runTarget(one, { ...next, overRuns: ["killed"] });
  assert.deepEqual([outcome.exitCode, outcome.stdout], [0, "fine\n"]);
  assert.deepEqual(fleet.processes, []);
  const left = () =>
    SSH_PLACES.flatMap((place) => readdirSync(place)).filter((name) => name.startsWith(`ops-ssh-${client.pid}-`));
  assert.equal(left().length, 1, "the folder of the one that was killed");
  await fleet.connect(t);
  assert.deepEqual(left(), [], "the next run has removed it");
});

test("a failing source of input, or a line that cannot be taken, ends the script on the worker too", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  async function* broken() {
    yield Buffer.from("half");
    throw new Error("the other half is missing");
  }
  await assert.rejects(one.script("cat; sleep 300", { input: broken() }), /the other half is missing/);
  for (const isShort of [false, true])
    await assert.rejects(
      one.script("echo line; sleep 300", {
        isShort,
        onLine: () => {
          throw new Error("no room for it");
        },
      }),
      /no room for it/,
    );
  assert.deepEqual(fleet.processes.length, 0);
});

test("CP-135 a cancelled sync leaves no process, no lock and the old tree", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const stop = new AbortController();
  const endless = {
    ...syncFile("large", "x"),
    size: 1e9,
    async *open() {
      for (let sent = 0; ; sent++) {
        if (sent === 10) stop.abort();
        yield Buffer.alloc(64 * 1024);
        await sleep(1);
      }
    },
  };
  const tree = { name: "web", folder: "jobs/web", files: [endless] };
  await assert.rejects(syncTree(one, tree, { signal: stop.signal }), { code: "cancelled" });
  assert.deepEqual(fleet.processes, []);
  const { stdout } = await one.script("ls -A .sync jobs 2>/dev/null; echo");
  assert.equal(stdout.trim(), ".sync:");
});
