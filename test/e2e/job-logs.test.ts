import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { signalProcess } from "../../lib/core/process.ts";
import { type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { COMMAND, LocalServer, ops } from "../../scripts/local-server.ts";
import { dial } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { until, writeFiles } from "../helpers/temporary.ts";
import { Wire } from "../helpers/wire.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const SECRET = "sesame-open-sesame";

/**
 * A server with a bucket whose job web is on the workers of a fleet, and on 127.0.0.9, where nobody listens; nothing is
 * deployed. The job has a log on 127.0.0.1, and none on 127.0.0.2.
 */
async function setUp(t: Pick<TestContext, "after">) {
  const fleet = await SshFleet.start(t, { hosts: ["127.0.0.1", "127.0.0.2"] });
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const layout = layoutOf(bucket.folder);
  const addresses = [...fleet.workers, fleet.worker("127.0.0.9", { sshPort: 1 })];
  makeWorkspace(bucket.folder, {
    workers: addresses.map(({ host, root, sshUser, sshPort }) => ({ host, root, ssh_user: sshUser, ssh_port: sshPort })),
    jobs: { web: { version: "1.0.0", selectors: ["worker"] }, lone: { version: "1.0.0", selectors: ["absent"] } },
    files: { "ops.conf": 'ssh_key = "fleet.key"\nuse_sudo = false\n' },
  });
  copyFileSync(fleet.sshd.clientKey, path.join(layout.secrets, "fleet.key"));
  mkdirSync(path.dirname(layout.knownHosts), { recursive: true, mode: 0o700 });
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  const { body } = await server.call("POST", `${bucket.path}/build`);
  const run = await server.ended(bucket.path, body.run_id);
  assert.equal(run.status, "succeeded", JSON.stringify(run.error));
  const put = await server.call("PUT", `${bucket.path}/secrets/jobs/web/token`, { body: { value: SECRET } });
  assert.equal(put.status, 204);
  const jobFolder = (host: string) => path.join(fleet.worker(host).root, bucket.id, "jobs/web");
  const log = path.join(jobFolder("127.0.0.1"), "logs/web.log");
  const logs = (...flags: string[]) => ops(["logs", "web", "--bucket-dir", bucket.folder, ...flags]);
  const remote = (...flags: string[]) =>
    ops(["logs", "web", "--server", server.url, "--bucket", bucket.id, ...flags], { env: { OPS_SERVE_TOKEN: TOKEN } });
  const runs = () => readdirSync(layout.runs).length;
  return { fleet, server, bucket, layout, log, logs, remote, jobFolder, runs };
}

type SetUp = Awaited<ReturnType<typeof setUp>>;

/** Puts the job's files on the workers anew: the Makefile, where there is one, and the log. */
function placeJob({ fleet, jobFolder, log }: SetUp, makefile?: string): void {
  for (const host of fleet.hosts) {
    rmSync(jobFolder(host), { recursive: true, force: true });
    writeFiles(jobFolder(host), { "logs/.keep/none": "", ...(makefile !== undefined && { Makefile: makefile }) });
  }
  appendFileSync(log, `one\ntwo ${SECRET}\n\u001b[31mthree\n`);
}

let shared: SetUp;
const cleanUp: (() => unknown)[] = [];
before(async () => {
  shared = await setUp({ after: (one) => void cleanUp.push(one as () => unknown) });
});
after(async () => {
  const errors: unknown[] = [];
  for (const one of cleanUp) await Promise.try(one).catch((error) => errors.push(error));
  assert.deepEqual(errors, []);
});

/** The set-up that serves all tests but those that end its server, with the job's files as they were. */
function anew(makefile?: string): SetUp {
  // What a test that failed has left there would fail the others.
  for (const pid of shared.fleet.processes) signalProcess(pid, "SIGKILL");
  placeJob(shared, makefile);
  return shared;
}

/** An answer that goes on, with all that has come of it, over a connection that can be paused and left. */
function following(t: TestContext, server: { url: string }, target: string) {
  const socket = dial(t, Number(new URL(server.url).port));
  const told = { socket, text: "" };
  socket.on("data", (chunk: Buffer) => {
    told.text += chunk;
  });
  socket.write(`GET ${target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`);
  return told;
}

test("CP-471 the ends of a job's logs come from every worker; who cannot be reached is one error, and nothing is written", async () => {
  const { fleet, server, bucket, layout, logs, remote, jobFolder, runs } = anew();
  const before = [runs(), ...fleet.hosts.map((host) => readdirSync(jobFolder(host), { recursive: true }))];
  await using _ = await acquireLock(layout, uuidV7(), "deploy");
  const { status, text } = await server.call("GET", `${bucket.path}/jobs/web/logs?tail=2`);
  assert.equal(status, 200);
  const lines = text.split("\n");
  assert.equal(lines[0], "asked: 127.0.0.1 127.0.0.2 127.0.0.9");
  assert.deepEqual(
    lines.filter((line) => line.startsWith("127.")),
    ["127.0.0.1 | two ***", "127.0.0.1 | \u001b[31mthree"],
  );
  const errors = lines.filter((line) => line.startsWith("error: ")).sort();
  assert.match(errors[0] ?? "", /^error: web on 127\.0\.0\.2: .*no target logs, and jobs\/web\/logs has no file$/);
  assert.match(errors[1] ?? "", /^error: web on 127\.0\.0\.9: /);
  assert.deepEqual([errors.length, ...lines.slice(-2)], [2, "end: 1", ""]);
  const local = await logs("--tail", "2");
  assert.equal(local.stdout, "127.0.0.1 | two ***\n127.0.0.1 | \\x1b[31mthree\n");
  assert.deepEqual(
    [local.code, local.stderr.split("\n").sort().slice(1).map(untried)],
    [1, errors.map((line) => untried(line.replace("error", "ops")))],
  );
  const one = await logs("--worker", "127.0.0.1");
  assert.deepEqual([one.code, one.stdout, one.stderr], [0, "one\ntwo ***\n\\x1b[31mthree\n", ""]);
  assert.deepEqual(await remote("--worker", "127.0.0.1"), one);
  assert.deepEqual(
    await remote("--worker", "127.0.0.1,127.0.0.2", "--json"),
    await logs("--worker", "127.0.0.1,127.0.0.2", "--json"),
  );
  const asJson = await logs("--worker", "127.0.0.1", "--tail", "1", "--json");
  assert.deepEqual(JSON.parse(asJson.stdout), { worker: "127.0.0.1", stream: "stdout", text: "\u001b[31mthree" });
  assert.deepEqual([runs(), ...fleet.hosts.map((host) => readdirSync(jobFolder(host), { recursive: true }))], before);
});

test("CP-471 where the Makefile has the target logs it decides, and learns how many lines, and whether to follow", async () => {
  const makefile = 'TAIL ?= 7\nstart stop logs:\n\t@echo "$@ $(TAIL) $(FOLLOW)."; echo warned >&2\n';
  const { logs, jobFolder } = anew(makefile);
  const { code, stdout } = await logs("--worker", "127.0.0.1,127.0.0.2");
  const told = (host: string) => [`${host} ! warned`, `${host} | logs 100 .`];
  assert.deepEqual([code, stdout.trimEnd().split("\n").sort()], [0, ["127.0.0.1", "127.0.0.2"].flatMap(told)]);
  const follow = await logs("--worker", "127.0.0.1", "--tail", "3", "-f");
  assert.deepEqual([follow.code, follow.stdout.split("\n").sort()], [0, ["", "logs 3 1.", "warned"]]);
  writeFiles(jobFolder("127.0.0.1"), { Makefile: "logs:\n\t@exit 3\n" });
  const failed = await logs("--worker", "127.0.0.1");
  assert.match(failed.stderr, /^ops: web on 127\.0\.0\.1: the command ended with exit code 2$/m);
  assert.equal(failed.code, 1);
});

test("CP-471 a job's line with the control character 1 is a line of the log", async () => {
  const makefile = "logs:\n\t@printf '\\001%s\\n' mine; printf '\\001%s\\n' warned >&2\n";
  const { logs } = anew(makefile);
  const { code, stdout, stderr } = await logs("--worker", "127.0.0.1");
  assert.deepEqual([code, stdout.split("\n").sort(), stderr], [0, ["", "\\x01mine", "\\x01warned"], ""]);
});

test("CP-471 where logs/ is a symbolic link nothing behind the link is read", async () => {
  const { fleet, logs, jobFolder } = anew();
  const secret = path.join(fleet.worker("127.0.0.2").root, "secret");
  writeFiles(secret, { "web.log": "hidden\n" });
  rmSync(path.join(jobFolder("127.0.0.2"), "logs"), { recursive: true });
  symlinkSync(secret, path.join(jobFolder("127.0.0.2"), "logs"));
  const { code, stdout, stderr } = await logs("--worker", "127.0.0.2");
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /^ops: web on 127\.0\.0\.2: jobs\/web\/logs is a symbolic link on the worker/);
  writeFiles(jobFolder("127.0.0.2"), { Makefile: "logs:\n\t@cat logs/web.log\n" });
  assert.equal((await logs("--worker", "127.0.0.2")).stdout, "hidden\n", "a Makefile reads what it likes");
});

test("CP-471 unknown names are refused as JSON before anything begins, wrong flags as wrong usage", async () => {
  const { server, bucket, logs, remote } = anew();
  const refused = async (rest: string) => {
    const { status, body } = await server.call("GET", `${bucket.path}/jobs/${rest}`);
    return [status, body.error];
  };
  assert.deepEqual(await refused("wbe/logs"), [404, "not_found"]);
  assert.deepEqual(await refused("lone/logs"), [404, "not_found"]);
  assert.deepEqual(await refused("web/logs?worker=10.9.9.9"), [400, "unknown_name"]);
  assert.deepEqual(await refused("web/logs?tail=-1"), [400, "invalid_request"]);
  for (const flags of [
    ["--worker", "10.9.9.9"],
    ["--run", "x"],
  ])
    assert.deepEqual(await remote(...flags), await logs(...flags));
  for (const [flags, sentence] of [
    [["--run", "x"], "--run goes without a job"],
    [["--format", "raw"], "--format goes without a job"],
  ] as const) {
    const { code, stderr } = await logs(...flags);
    assert.deepEqual([code, stderr.includes(sentence)], [2, true], stderr);
  }
  const alone = await ops(["logs", "-f", "--bucket-dir", bucket.folder]);
  assert.deepEqual([alone.code, alone.stderr.includes("--follow goes with a job")], [2, true]);
});

test("CP-472 a log that is followed on a server goes on over a lost connection, and says that lines are missing", async (t) => {
  const { fleet, server, bucket, log } = anew();
  const wire = await Wire.to(t, server.url);
  // The head of the answer is longer.
  wire.allow = (count) => (count === 1 ? { down: 2_000 } : {});
  const [file = "", ...before] = COMMAND;
  const words = ["logs", "web", "-f", "--worker", "127.0.0.1", "--server", wire.url, "--bucket", bucket.id];
  const child = spawn(file, [...before, ...words], { stdio: "pipe", env: { ...process.env, OPS_SERVE_TOKEN: TOKEN } });
  const closed = once(child, "close");
  const told = { out: "", err: "" };
  child.stdout.on("data", (text: Buffer) => {
    told.out += text;
  });
  child.stderr.on("data", (text: Buffer) => {
    told.err += text;
  });
  await until("the log is there", () => told.out.includes("three"));
  await until("the connection is cut", () => {
    appendFileSync(log, `${"more ".repeat(20)}\n`);
    return wire.count === 2;
  });
  await until("the log goes on", () => {
    appendFileSync(log, "again\n");
    return told.out.includes("again");
  });
  assert.match(told.err, /ops: the connection was lost: what is logged until it is there again is missing\n/);
  assert.equal(told.out.split("one\n").length, 2, "no line comes twice");
  child.kill("SIGINT");
  assert.deepEqual(await closed, [130, null]);
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
});

test("CP-472 a followed log goes on; when the client leaves, nothing is left on the worker", async (t) => {
  const { fleet, server, bucket, log } = anew();
  const told = following(t, server, `${bucket.path}/jobs/web/logs?worker=127.0.0.1&follow=true`);
  await until("the end of the log", () => told.text.includes("three\n"));
  assert.ok(fleet.processes.length > 0);
  appendFileSync(log, "four\n");
  await until("the new line", () => told.text.includes("127.0.0.1 | four\n"));
  told.socket.destroy();
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
});

test("CP-472 a lost connection ends the reading there as an error, and nothing is left on the worker", async (t) => {
  const { fleet, server, bucket } = anew(SILENT);
  const told = following(t, server, `${bucket.path}/jobs/web/logs?worker=127.0.0.1&follow=true`);
  await until("the end of the log", () => told.text.includes("three\n"));
  fleet.cut();
  await until("the end of the answer", () => told.text.includes("end: 1\n"));
  assert.match(told.text, /^error: web on 127\.0\.0\.1: .+$/m);
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
});

test("CP-472 when the process that reads is killed, or the server stops or is killed, nothing is left on the worker", async (t) => {
  const own = await setUp(t);
  placeJob(own, SILENT);
  const { fleet, server, bucket } = own;
  const target = `${bucket.path}/jobs/web/logs?worker=127.0.0.1&follow=true`;
  const first = following(t, server, target);
  await until("the end of the log", () => first.text.includes("three\n"));
  for (const pid of readers()) signalProcess(pid, "SIGKILL");
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
  assert.doesNotMatch(first.text, /^end:/m);
  const second = following(t, server, target);
  await until("the end of the log again", () => second.text.includes("three\n"));
  await server.stop();
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
  assert.deepEqual(readers(), []);
  const killed = await LocalServer.start(server.root, { token: TOKEN, quiet: true });
  t.after(() => killed.process.kill("SIGKILL"));
  const third = following(t, killed, target);
  await until("the end of the log once more", () => third.text.includes("three\n"));
  killed.process.kill("SIGKILL");
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
});

/** An error without the number of tries. */
function untried(line: string): string {
  return line.replace(/tried \d+ times/, "tried");
}

/** A command that is silent from some time on, and so never learns that nobody reads. */
const SILENT = "logs:\n\t@cat logs/web.log; exec sleep 1000\n";

/** The processes that read for a server in this process. */
function readers(): number[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim().split(" ");
  return children.filter((pid) => existsSync(`/proc/${pid}`) && commandLine(pid).includes("worker\0run")).map(Number);
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

test("CP-472 a client that does not read stops the log, and nothing is left when it has gone", async (t) => {
  const line = "x".repeat(1000);
  const makefile = `logs:\n\t@i=0; while echo ${line}; do i=$$((i + 1)); echo $$i >count; done\n`;
  const { fleet, server, bucket, jobFolder } = anew(makefile);
  const told = following(t, server, `${bucket.path}/jobs/web/logs?worker=127.0.0.1&follow=true`);
  const count = () => Number(readFileSync(path.join(jobFolder("127.0.0.1"), "count"), "utf8") || "0");
  await until("the first lines", () => existsSync(path.join(jobFolder("127.0.0.1"), "count")));
  told.socket.pause();
  let seen = -1;
  let since = performance.now();
  await until("the log to stand still", () => {
    const now = count();
    if (now !== seen) [seen, since] = [now, performance.now()];
    return performance.now() - since > 2_000;
  });
  told.socket.destroy();
  await until("the end of it all on the worker", () => fleet.processes.length === 0);
});

test("CP-472 `ops logs -f` stops while its reader stands still, and ends when its reader has left", async (t) => {
  const makefile = `logs:\n\t@while echo ${"x".repeat(1000)}; do :; done\n`;
  const { fleet, bucket } = anew(makefile);
  const [file, ...before] = [...COMMAND, "logs", "web", "--worker", "127.0.0.1", "-f", "--bucket-dir", bucket.folder];
  for (const signal of ["SIGINT", "SIGTERM", undefined] as const) {
    const child = spawn(file, before, { stdio: ["ignore", "pipe", "ignore"] });
    t.after(() => child.kill("SIGKILL"));
    await until("the pipe to be full", () => child.stdout.readableLength > 0);
    await delay(1_000);
    if (signal === undefined) child.stdout.destroy();
    else child.kill(signal);
    await until("the end of the command", () => child.exitCode === (signal === undefined ? 0 : 130));
    await until("the end of it all on the worker", () => fleet.processes.length === 0);
  }
});

test("CP-472 Ctrl-C and a kill of `ops logs -f` leave nothing on the worker", async () => {
  const { fleet, server, bucket } = anew(SILENT);
  const here = ["--bucket-dir", bucket.folder];
  const follow = async (signal: NodeJS.Signals, where = here): Promise<CommandOutcome> => {
    const launcher = new Launcher({ ...process.env, OPS_SERVE_TOKEN: TOKEN });
    const argv = [...COMMAND, "logs", "web", "--worker", "127.0.0.1", "-f", ...where] as const;
    const onLine = (line: string) => {
      if (line.endsWith("three")) for (const { pgid } of launcher.groups) signalProcess(pgid, signal);
    };
    const ended = await launcher.run(argv, { onLine });
    await until("the end of it all on the worker", () => fleet.processes.length === 0);
    return ended;
  };
  const stopped = await follow("SIGINT");
  assert.deepEqual([stopped.exitCode, stopped.stderr], [130, "ops: cancelled\n"]);
  assert.equal((await follow("SIGKILL")).signal, "SIGKILL");
  const there = ["--server", server.url, "--bucket", bucket.id];
  const cancelled = await follow("SIGINT", there);
  assert.deepEqual([cancelled.exitCode, cancelled.stderr], [130, "ops: cancelled\n"]);
  assert.equal((await follow("SIGKILL", there)).signal, "SIGKILL");
});
