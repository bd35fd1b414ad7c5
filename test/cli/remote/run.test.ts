import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { RUNS } from "../../../lib/run/protocol.ts";
import { Going } from "../../helpers/client.ts";
import { ops } from "../../helpers/command-line.ts";
import { storedRuns } from "../../helpers/runs.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const HOSTS = ["127.0.0.1", "127.0.0.2"];
const BROKEN = "start:\n\t@echo begins\n\t@echo 'no database' >&2; exit 3\nstop restart reload status:\n\t@true\n";

/** A bucket with a job that works, one whose start fails and a hook; its workers are folders of this machine. */
function bucketIn(dir: string): void {
  makeWorkspace(dir, {
    jobs: {
      web: { version: "1.0.0", selectors: ["worker"], hooks: { look: { executed_on: ["cli"] } } },
      broken: { version: "1.0.0", selectors: ["worker"] },
    },
    workers: HOSTS.map((host) => ({ host, connection: "local", root: path.join(dir, "workers", host) })),
    files: {
      "workspace/jobs/web/_hooks/look.py": "import ops\nprint('looks from', ops.allocation_ip())\n",
      "workspace/jobs/broken/Makefile": BROKEN,
    },
  });
}

/** The same bucket here and on a server. A command line is carried out in both places. */
async function setUp(t: TestContext) {
  const here = temporaryFolder(t);
  const server = await TestServer.start(t);
  const { id, path: base, folder: there } = await server.createBucket();
  for (const dir of [here, there]) bucketIn(dir);
  assert.equal((await ops(["init", "--bucket-dir", here])).code, 0);
  const env = { OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: server.url, OPS_BUCKET: id };
  const remote = (...args: string[]) => ops(args, { env });
  const local = (...args: string[]) => ops([...args, "--local", "--bucket-dir", here], { env });
  const goingRemote = (...args: string[]) => new Going(args, env);
  const goingLocal = (...args: string[]) => new Going([...args, "--local", "--bucket-dir", here], env);
  const both = async (...args: string[]) => {
    const ended = await Promise.all([local(...args), remote(...args)]);
    const [a, b] = ended.map((one) => ({ code: one.code, stdout: sorted(one.stdout), stderr: sorted(one.stderr) }));
    assert.deepEqual(b, a, args.join(" "));
    return ended[1];
  };
  /** Workers are dealt with at the same time: their lines come in any order. */
  const sorted = (text: string) => plain(text).split("\n").sort().join("\n");
  /** Without ids, times, who, and where the bucket lies. */
  const plain = (text: string) =>
    text
      .replaceAll(here, "<bucket>")
      .replaceAll(there, "<bucket>")
      .replace(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "<id>")
      .replace(/\b\d{8}T\d{6}\.\d{3}Z-\w{8}: \d+ bytes/g, "<snapshot>")
      .replace(/\b\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>")
      .replace(/("load\d+|uptime_s|_ms)": [\d.]+/g, "$1<number>")
      .replace(/(-BEGIN CERTIFICATE-)[\s\S]*?(-END CERTIFICATE-)/g, "$1$2")
      .replace(/(sha256": ")\w+/g, "$1<hash>")
      .replace(/\b\d+(\.\d+)? (ms|s|KiB|MiB|B)\b/g, "<amount>")
      .replace(/ by (?:\S+ \(process \d+\) on the command line|[\w.-]+, \w+ from \S+)/g, " by <who>")
      .replace(/process \d+/g, "process <pid>");
  const runs = async () =>
    (await server.call("GET", `${base}/runs`)).body.items as { id: string; kind: string; status: string }[];
  const queue = async () => (await server.call("GET", `${base}/queue`)).body.items as { position: number; connected: boolean }[];
  return { server, base, here, remote, local, goingRemote, goingLocal, both, plain, runs, queue };
}

test("every command that starts a run prints on a server what it prints here, and ends with the same code", async (t) => {
  const { both, remote } = await setUp(t);
  const lines: [code: number, ...args: string[]][] = [
    [0, "build"],
    [0, "deploy", "--dry-run", "--jobs", "web"],
    [0, "deploy", "--jobs", "web"],
    [1, "deploy"],
    [1, "deploy", "--retry", "never"],
    [1, "deploy", "--jobs", "nope"],
    [0, "job", "restart", "web"],
    [1, "job", "start", "broken,web", "--json"],
    [0, "job", "status", "web"],
    [0, "job", "reload", "web"],
    [1, "job", "run", "broken", "--target", "start"],
    [2, "job", "stop"],
    [1, "job", "stop", "nope"],
    [0, "hooks", "look", "web"],
    [1, "hooks", "nope"],
    [0, "health_check"],
    [0, "run_command", "echo $WORKER_IP; echo aside >&2"],
    [0, "run_command", "echo same", "--fold", "-c", "2"],
    [1, "run_command", "exit 4", "-w", "127.0.0.2", "--json"],
    [2, "run_command", "df", "-c", "0"],
    [0, "worker", "uptime", "--workers", "127.0.0.1", "--json"],
    [0, "drift", "--jobs", "web"],
    [0, "job", "stop", "web"],
    [0, "worker", "trust"],
    [0, "snapshot", "create"],
    [0, "gc"],
  ];
  const words = lines.map(([, ...args]) => args.join(" "));
  const left = Object.keys(RUNS).filter(
    (kind) => !words.some((line) => line.startsWith(kind.replace(/^(job|worker|snapshot)_/, "$1 "))),
  );
  // What the machine is like differs from moment to moment; keys differ; the others change the source, which only a server keeps.
  const keys = ["ca_rotate", "kv_rekey", "ssh_key_rotate"];
  assert.deepEqual(left.sort(), [...keys, "push", "rollback", "snapshot_restore", "worker_facts", "worker_sysstat"].sort());
  for (const [code, ...args] of lines) {
    const ended = await both(...args);
    assert.equal(ended.code, code, `${args.join(" ")}: ${ended.stdout}${ended.stderr}`);
  }
  const [{ name }] = JSON.parse((await remote("snapshot", "list", "--json")).stdout);
  const restored = await remote("snapshot", "restore", name, "--with-source");
  assert.match(restored.stderr, /^ops: --with-source: on a server the source comes with `ops push`/);
});

test("a run that is interrupted ends with 130 on a server as here; a second interrupt leaves it alone", async (t) => {
  const { local, remote, goingLocal, goingRemote, plain, runs } = await setUp(t);
  await Promise.all([local("build"), remote("build")]);
  const command = ["run_command", "echo begins; sleep 300; echo never", "-w", "127.0.0.1"];
  const [here, there] = [goingLocal(...command), goingRemote(...command)];
  await Promise.all([here.says("| begins"), there.says("| begins")]);
  const [a, b] = await Promise.all([here.stop("SIGINT"), there.stop("SIGINT")]);
  assert.deepEqual([b.code, plain(b.stdout)], [a.code, plain(a.stdout)]);
  assert.equal(b.code, 130);
  assert.match(b.stderr, /^asked the server to cancel the run; a second interrupt leaves the run alone$/m);
  assert.equal((await runs())[0]?.status, "cancelled");
});

test("a terminal that is closed, and a second interrupt, leave the run alone", async (t) => {
  const { remote, goingRemote, runs, server, base } = await setUp(t);
  await remote("build");
  const sleeper = goingRemote("run_command", "trap '' TERM; echo begins; sleep 300 & wait; sleep 300", "-w", "127.0.0.1");
  await sleeper.says("| begins");
  assert.equal((await sleeper.stop("SIGHUP")).code, 130);
  const [{ id = "", status } = {}] = await runs();
  assert.equal(status, "running");
  assert.equal((await server.call("POST", `${base}/runs/${id}/cancel`)).status, 202);
  await server.ended(base, id);
});

test("--detach prints the id of a run that goes on without its command; here it is refused", async (t) => {
  const { server, base, remote, local, runs } = await setUp(t);
  server.hold();
  const detached = await remote("build", "--detach");
  const [{ id = "", status } = {}] = await runs();
  assert.deepEqual([detached.code, detached.stdout, detached.stderr, status], [0, `${id}\n`, "", "running"]);
  server.release();
  assert.equal((await server.ended(base, id)).status, "succeeded");
  const here = await local("build", "--detach");
  assert.deepEqual([here.code, /--detach goes with --server/.test(here.stderr)], [2, true]);
});

test("--retry repeats on a server what it repeats here, by the end of the run's id", async (t) => {
  const { both, local, remote, plain, runs, here } = await setUp(t);
  await both("build");
  await both("run_command", "[ $WORKER_IP = 127.0.0.1 ] || exit 3", "-c", "2");
  const [failed] = await runs();
  const [first] = await storedRuns(layoutOf(here));
  const again = await Promise.all([
    local("run_command", "--retry", first?.id.slice(-8) ?? ""),
    remote("run_command", "--retry", failed?.id.slice(-8) ?? ""),
  ]);
  const [a, b] = again.map(({ code, stdout, stderr }) => [code, plain(stdout), plain(stderr)]);
  assert.deepEqual(b, a);
  assert.match(again[1].stdout, /0 of 1 worker is ok/);
  await both("job", "start", "broken,web");
  const [started] = await runs();
  const retried = await remote("job", "start", "--retry", started?.id ?? "", "--json");
  assert.deepEqual([retried.code, retried.stdout.match(/"job": "(broken|web)"/g)?.length], [1, 2], retried.stdout);
  const impossible = await remote("deploy", "--retry", started?.id ?? "");
  assert.deepEqual([impossible.code, impossible.stdout], [1, ""]);
});

test("a busy bucket is 75 with its holder; in line a start is told its place, and starts when the bucket is free", async (t) => {
  const { server, base, remote, runs, queue } = await setUp(t);
  server.hold();
  const holder = (await server.call("POST", `${base}/build`, { body: {} })).body.run_id;
  const busy = await remote("gc");
  assert.deepEqual([busy.code, busy.stdout], [75, ""]);
  assert.match((await remote("buckets")).stdout, / a run goes on /);
  assert.match(
    busy.stderr,
    /^ops: bucket busy: another ops operation is in progress\nheld by build \(run \S+\) on \S+, process \d+, since/,
  );
  const inTime = await remote("gc", "--wait=1s");
  assert.deepEqual([inTime.code, /^waiting in line, number 1: bucket busy/.test(inTime.stderr)], [75, true], inTime.stderr);
  const first = remote("build", "--wait");
  await until("the first in line", async () => (await queue()).length === 1);
  const second = remote("gc", "--wait=5m");
  await until("the second in line", async () => (await queue()).length === 2);
  server.release();
  const [one, two] = await Promise.all([first, second]);
  assert.deepEqual([one.code, two.code], [0, 0], one.stderr + two.stderr);
  assert.deepEqual(
    (await runs()).map(({ id, kind }) => (id === holder ? "holder" : kind)),
    ["gc", "build", "holder"],
  );
});

test("a start that no answer comes to is given up at the second interrupt, which says what may be", async (t) => {
  const { server, base } = await setUp(t);
  const { promise: asked, resolve: isAsked } = Promise.withResolvers<void>();
  const deaf = createServer(async (request, response) => {
    if (request.method === "POST") return isAsked();
    const answer = await fetch(server.url + request.url, { headers: { authorization: request.headers.authorization ?? "" } });
    response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
  });
  await once(deaf.listen(0, "127.0.0.1"), "listening");
  t.after(() => deaf.close().closeAllConnections());
  const { port } = deaf.address() as AddressInfo;
  const env = { OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: `http://127.0.0.1:${port}`, OPS_BUCKET: path.basename(base) };
  const starting = new Going(["gc"], env);
  await asked;
  // Nothing is said at the first one, and two at once may be one.
  const again = setInterval(() => starting.child.kill("SIGINT"), 200);
  const { code, stderr } = await starting.ended.finally(() => clearInterval(again));
  assert.equal(code, 130, stderr);
  assert.match(stderr, /^the start is given up; if it had arrived, a run goes on: see `ops runs list`$/m);
});

test("an interrupt gives the place in line up, and nothing starts", async (t) => {
  const { server, base, goingRemote, runs, queue } = await setUp(t);
  server.hold();
  const holder = (await server.call("POST", `${base}/build`, { body: {} })).body.run_id;
  const waiting = goingRemote("gc", "--wait");
  await until("a place in line", async () => (await queue()).length === 1);
  const { code, stdout, stderr } = await waiting.stop("SIGINT");
  assert.deepEqual([code, stdout], [130, ""], stderr);
  assert.deepEqual(await queue(), []);
  server.release();
  await server.ended(base, holder);
  assert.equal((await runs()).length, 1);
});
