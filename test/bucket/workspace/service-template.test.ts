// The script of the template `service`, with real programs: under the system's sh, and where there is only busybox.
import assert from "node:assert/strict";
import { cpSync, existsSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { identify, signalProcess } from "../../../lib/core/process.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { type CommandOutcome, Launcher } from "../../../lib/core/spawn.ts";
import { patience } from "../../../scripts/patience.ts";
import { freePort } from "../../helpers/sshd.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { busyboxFolder, processesIn, USERLANDS, type Userland } from "../../helpers/worker.ts";

const SERVICE = path.join(PROGRAM_ROOT, "lib", "bucket", "templates", "service", "service");

const listening = (port: number) => `
PORT=${port}
run() { exec "${process.execPath}" -e 'require("node:net").createServer().listen(Number(process.argv[1]), "127.0.0.1")' "$PORT"; }
ready() { listens "$PORT"; }`;
const SLEEPS = "run() { exec sleep 1000; }\nready() { true; }";

/** A job's folder on a worker whose program is described by `program`. */
async function service(t: TestContext, program: string, userland: Userland = "system") {
  const folder = path.join(temporaryFolder(t), "job with blanks");
  t.after(() => processesIn(folder).forEach((pid) => void signalProcess(pid, "SIGKILL")));
  const describe = (text: string) => writeFileSync(path.join(folder, "program.sh"), `${text}\n`);
  cpSync(SERVICE, path.join(folder, "service"));
  describe(program);
  const launcher = new Launcher({ PATH: userland === "busybox" ? await busybox(t) : process.env.PATH });
  const run = (command: string) => launcher.run(["sh", path.join(folder, "service"), command], { timeoutMs: patience(30_000) });
  const read = (file: string) => readFileSync(path.join(folder, file), "utf8");
  const pid = () => Number(read("data/pid").split(" ")[0]);
  return { folder, describe, run, read, pid, has: (file: string) => existsSync(path.join(folder, file)) };
}

async function busybox(t: TestContext): Promise<string> {
  const bin = await busyboxFolder(t);
  for (const name of ["awk", "cp"]) symlinkSync(path.join(bin, "sh"), path.join(bin, name));
  return bin;
}

const ended = ({ exitCode, stdout, stderr }: CommandOutcome) => [exitCode, stdout, stderr];

for (const userland of USERLANDS) {
  test(`${userland}: start twice is one process, stop twice is no error, status tells both`, async (t) => {
    const { run, pid, has } = await service(t, listening(await freePort()), userland);
    assert.deepEqual(ended(await run("status")), [3, "", "not running\n"]);
    assert.deepEqual(ended(await run("start")), [0, "", ""]);
    const first = pid();
    assert.deepEqual(ended(await run("start")), [0, "", ""]);
    assert.equal(pid(), first);
    assert.deepEqual(ended(await run("status")), [0, `running, pid ${first}\n`, ""]);
    assert.deepEqual(ended(await run("restart")), [0, "", ""]);
    assert.notEqual(pid(), first);
    const second = pid();
    for (const _ of ["once", "again"]) assert.deepEqual(ended(await run("stop")), [0, "", ""]);
    assert.deepEqual([identify(first), identify(second), has("data/pid")], [undefined, undefined, false]);
  });

  test(`${userland}: stop kills a program that ignores TERM, and what the program has started`, async (t) => {
    const program = "STOP_SECONDS=1\nrun() { trap '' TERM; sleep 1000 & exec sleep 1000; }\nready() { true; }";
    const { folder, run } = await service(t, program, userland);
    assert.equal((await run("start")).exitCode, 0);
    await until("program, its child and the watch", () => processesIn(folder).length >= 3);
    assert.deepEqual(ended(await run("stop")), [0, "", ""]);
    await until("nothing is left", () => processesIn(folder).length === 0);
  });
}

test("what the program has started gets its time to end, also after the program has ended", async (t) => {
  const child = `sh -c 'trap "sleep 0.5; echo well >data/end; exit" TERM; echo up >data/up; while :; do sleep 0.1; done'`;
  const { folder, run, read } = await service(t, `run() { ${child} & exec sleep 1000; }\nready() { [ -f data/up ]; }`);
  assert.equal((await run("start")).exitCode, 0);
  assert.deepEqual(ended(await run("stop")), [0, "", ""]);
  assert.equal(read("data/end"), "well\n");
  assert.deepEqual(processesIn(folder), []);
});

test("a program that was killed does not run, and start, restart and reload start it again", async (t) => {
  const { run, pid } = await service(t, SLEEPS);
  for (const command of ["start", "restart", "reload"]) {
    assert.equal((await run(command)).exitCode, 0, command);
    const killed = pid();
    process.kill(killed, "SIGKILL");
    await until("the end of the program", () => identify(killed) === undefined);
    assert.equal((await run("status")).exitCode, 3);
  }
});

test("a stale pid file, of a living process too, is no running program, and that process is left alone", async (t) => {
  const { folder, run, pid } = await service(t, SLEEPS);
  await run("start");
  await run("stop");
  for (const stale of [`${process.pid} 1`, "4194304 1", `${process.pid}`, ""]) {
    writeFileSync(path.join(folder, "data", "pid"), `${stale}\n`);
    assert.equal((await run("status")).exitCode, 3, stale);
    assert.equal((await run("stop")).exitCode, 0, stale);
    writeFileSync(path.join(folder, "data", "pid"), `${stale}\n`);
    assert.equal((await run("start")).exitCode, 0, stale);
    assert.notEqual(pid(), process.pid);
    assert.equal((await run("stop")).exitCode, 0, stale);
  }
});

test("a program that is not ready in time is ended, and start says so with the end of its log", async (t) => {
  const { folder, run, has } = await service(
    t,
    "START_SECONDS=1\nrun() { echo the reason; exec sleep 1000; }\nready() { false; }",
  );
  const said = [1, "", `the program is not ready; the end of ${folder}/logs/service.log:\nthe reason\n`];
  assert.deepEqual(ended(await run("start")), said);
  assert.equal(has("data/pid"), false);
  await until("nothing is left", () => processesIn(folder).length === 0);
});

test("a program that ends at once is not waited for", async (t) => {
  const { run, has } = await service(t, "START_SECONDS=1000\nrun() { echo the reason >&2; exit 1; }\nready() { false; }");
  const outcome = await run("start");
  assert.equal(outcome.exitCode, 1);
  assert.match(outcome.stderr, /the reason\n$/);
  assert.equal(has("data/pid"), false);
});

test("a program that runs and is not ready has the status 1, and a second start leaves it running", async (t) => {
  const { describe, run, pid } = await service(t, SLEEPS);
  await run("start");
  const first = pid();
  describe(`${SLEEPS}\nSTART_SECONDS=1\nready() { false; }`);
  assert.deepEqual(ended(await run("status")), [1, "", `pid ${first} runs, but is not ready\n`]);
  assert.equal((await run("start")).exitCode, 1);
  assert.equal(identify(pid())?.pid, first);
});

test("a port that another program listens on is not taken for the program's own", async (t) => {
  const port = await freePort();
  const other = await service(t, listening(port));
  assert.equal((await other.run("start")).exitCode, 0);
  const late = `PORT=${port}\nSTART_SECONDS=1\nrun() { exec sleep 1000; }\nready() { listens "$PORT"; }`;
  assert.equal((await (await service(t, late)).run("start")).exitCode, 1);
});

test("reload sends the signal to the same process, and restarts a program that has none", async (t) => {
  const { describe, run, pid, read, folder } = await service(t, SLEEPS);
  await run("start");
  const first = pid();
  assert.equal((await run("reload")).exitCode, 0);
  assert.notEqual(pid(), first);
  await run("stop");
  const handler = 'process.on("SIGHUP", () => console.log("again")).emit("SIGHUP"); setInterval(() => {}, 1000)';
  describe(
    `RELOAD_SIGNAL=HUP\nrun() { exec "${process.execPath}" -e '${handler}'; }\nready() { grep -q again ${"logs/service.log"}; }`,
  );
  await run("start");
  const second = pid();
  assert.equal((await run("reload")).exitCode, 0);
  await until("the second line", () => read("logs/service.log") === "again\nagain\n");
  assert.equal(pid(), second);
  assert.ok(processesIn(folder).includes(second));
});

test("a log beyond its limit moves to a second file, while the program goes on", async (t) => {
  const program = `LOG_BYTES=2000 LOG_LOOK_SECONDS=0.1
run() { exec sh -c 'while :; do echo 0123456789012345678901234567890123456789; sleep 0.005; done'; }
ready() { true; }`;
  const { folder, run, has, pid } = await service(t, program);
  const sizeOf = (file: string) => (has(file) ? statSync(path.join(folder, file)).size : 0);
  await run("start");
  const first = pid();
  await until("the second file", () => sizeOf("logs/service.log.1") > 2_000);
  await until("a log that is short again", () => sizeOf("logs/service.log") < 2_000);
  assert.equal(identify(pid())?.pid, first);
});

test("a word that is no command is refused", async (t) => {
  const { run } = await service(t, SLEEPS);
  for (const word of ["", "help"])
    assert.deepEqual(ended(await run(word)), [64, "", "usage: service start|stop|restart|reload|status\n"]);
});
