import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { COMMAND, type Ended, LocalServer } from "../../../scripts/local-server.ts";
import { Going } from "../../helpers/client.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { opsAtTerminal } from "../../helpers/terminal.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const folder = temporaryFolder();
const source = path.join(folder, "source");
const HOSTS = ["127.0.0.1", "127.0.0.2"];
let server: LocalServer;
/** The bucket, by the folder where the server has it. */
let dir: string;
let id: string;

let flags = 0;
const here = (...words: string[]) => ops([...words, "--bucket-dir", dir]);
const there = (...words: string[]) => ops(words, { env: { OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token } });

before(async () => {
  server = await LocalServer.start(path.join(folder, "root"));
  const made = await there("buckets", "create", "shop/live");
  assert.deepEqual([made.code, made.stderr], [0, ""]);
  id = made.stdout.trim();
  dir = path.join(folder, "root", id);
  const root = path.join(folder, "workers");
  makeWorkspace(source, {
    jobs: { web: { version: "1.0.0", selectors: ["worker"] }, api: { version: "1.0.0", selectors: ["worker"] } },
    workers: HOSTS.map((host) => ({ host, connection: "local", root: path.join(root, host) })),
    files: { "workspace/jobs/api/Makefile": "start stop restart reload status:\n\t@echo port 80 is taken >&2; exit 3\n" },
  });
  assert.equal((await there("push", "--dir", source, "--note", "Two jobs")).code, 0);
  assert.equal((await there("deploy")).code, 1);
});
after(() => server.stop("SIGKILL"));

/** The ids of the runs, oldest first. */
const runIds = () => readdirSync(layoutOf(dir).runs).sort();
const lastRun = () => runIds().at(-1) ?? "";

/** A command that goes on until its worker's script is told to end, and the id of its run. */
async function longRun(where: "here" | "there") {
  const flag = path.join(folder, `flag-${flags++}`);
  const script = `echo begun; : > ${flag}-begun; while [ ! -e ${flag} ]; do sleep 0.05; done; echo ended`;
  const ended =
    where === "here" ? here("run_command", script, "-w", "127.0.0.1") : there("run_command", script, "-w", "127.0.0.1");
  await until("the script begins", () => existsSync(`${flag}-begun`));
  const run = lastRun();
  return { run, ended, finish: () => writeFileSync(flag, "") };
}

test("runs, revisions, the key and the status are shown alike here and on a server", async () => {
  const both = async (...words: string[]): Promise<Ended> => {
    const [a, b] = await Promise.all([here(...words), there(...words)]);
    assert.deepEqual(a, b, words.join(" "));
    return a;
  };
  const list = await both("runs", "list");
  assert.match(
    list.stdout,
    /^id +kind +status +who +started +took +what\n.* deploy +failed .*\n.* push +succeeded +root .* Two jobs; revision /,
  );
  assert.deepEqual(await here("runs"), list);
  const failed = await both("runs", "list", "--status", "failed", "--limit", "5");
  assert.equal(failed.stdout.split("\n").length, 3);
  const run = failed.stdout.split("\n")[1]?.split(" ")[0] ?? "";
  const [first] = JSON.parse((await both("runs", "list", "--json", "--kind", "deploy")).stdout);
  assert.deepEqual([first.id, first.kind, first.status], [run, "deploy", "failed"]);
  assert.match(
    (await both("runs", "show", run.slice(-6))).stdout,
    /\nerror +the deploy is not complete[\s\S]*\n\njob +outcome .*\napi +failed +2 start +2 failed /,
  );
  assert.equal(JSON.parse((await both("runs", "show", "--json")).stdout).result.jobs.length, 2);
  const log = await both("runs", "log", run);
  assert.match(log.stdout, /\nerror: deploy failed after /);
  assert.equal((await both("runs", "log", run, "--tail", "1")).stdout, log.stdout.split("\n").slice(-2).join("\n"));
  const lines = (await both("runs", "log", run, "--json")).stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.equal(lines.length, log.stdout.trim().split("\n").length);
  const followed = await both("runs", "follow", run);
  assert.equal(followed.code, 1);
  assert.equal(followed.stdout.length + followed.stderr.length, log.stdout.length);
  assert.deepEqual((await both("runs", "follow", run, "--tail", "0")).stdout, "");
  assert.match(
    (await both("revisions")).stdout,
    /^revision .*\n[0-9a-f-]{36} .* succeeded +- +current, last successful +Two jobs\n$/,
  );
  const [revision] = JSON.parse((await both("revisions", "list", "--json")).stdout);
  assert.match((await both("revisions", "show", revision.id.slice(0, 20))).stdout, /^revision .*\n[\s\S]*\nnote +Two jobs\n/);
  assert.match((await both("revisions", "diff", revision.id)).stdout, /has the same files/);
  const [hereNow, thereNow] = [await here("status"), await there("status")];
  assert.match(hereNow.stdout, /^problem +reason +more\napi@127\.0\.0\.\[1-2\] +port 80 is taken +ops runs show /);
  assert.match(thereNow.stdout, /\nbucket +shop\/live on http:.*\nfleet +2 workers, 2 jobs, 4 allocations: 2 promoted, 2 new\n/);
  const facts = ({ stdout }: Ended) => stdout.replace(/^bucket .*\n/m, "").replace(/[\d.]+ (?:s|min) ago/g, "ago");
  assert.equal(facts(hereNow), facts(thereNow));
});

test("what there is none of, and what is mistyped, is told in a sentence, with --json as an object", async () => {
  for (const [words, code, sentence] of [
    [["runs", "show", "nope"], 1, /^ops: there is no run "nope"\n$/],
    [["runs", "show", "x"], 2, /give at least 4 letters/],
    [["runs", "list", "--kind", "deplyo"], 2, /^ops: --kind: expected one of push, .* found "deplyo"; did you mean deploy\?/],
    [
      ["runs", "list", "--status", "bad"],
      2,
      /--status: expected one of running, succeeded, failed, cancelled, found "bad" \(see/,
    ],
    [["runs", "list", "--limit", "0"], 2, /^ops: --limit: expected a whole number from 1 to 1000000, found "0"\n$/],
    [["runs", "log", "--tail", "5000"], 2, /--tail: expected a whole number from 0 to 1000, found "5000"/],
    [["runs", "cancel", "nope"], 1, /there is no run/],
    [["revisions", "show", "nope"], 1, /there is no revision "nope"/],
  ] as const)
    for (const ended of [await here(...words), await there(...words)]) {
      assert.equal(ended.code, code, ended.stderr);
      assert.match(ended.stderr, sentence);
    }
  const wrong = await there("runs", "show", "nope", "--json");
  assert.deepEqual([wrong.code, wrong.stdout], [1, ""]);
  assert.deepEqual(JSON.parse(wrong.stderr), { error: "run_not_found", message: 'there is no run "nope"' });
  assert.deepEqual(JSON.parse((await here("status", "--jsn", "--json")).stderr).error, "usage");
});

for (const where of ["here", "there"] as const) {
  const other = where === "here" ? here : there;
  test(`a run ${where} is followed to its end, with its exit code`, async () => {
    const { run, ended, finish } = await longRun(where);
    const following = other("runs", "follow", run);
    const status = await other("status");
    assert.match(status.stdout, new RegExp(`\nrunning +run_command since .*: ops runs follow ${run.slice(-8)}\n`));
    finish();
    const { code, stdout } = await following;
    assert.deepEqual([code, (await ended).code], [0, 0]);
    assert.match(stdout, /\| begun\n[\s\S]*\| ended\n/);
  });

  test(`a run ${where} is cancelled: the command says so once it has ended`, async () => {
    const { run, ended } = await longRun(where);
    const cancelled = await other("runs", "cancel", run, "--json");
    assert.equal(cancelled.code, 0, cancelled.stderr);
    const told = { run_id: run, status: "cancelled", confirmed: 1, total: 1 };
    assert.deepEqual([JSON.parse(cancelled.stdout), (await ended).code], [told, 130]);
    const again = await other("runs", "cancel", run);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /^ops: run \S+ has already ended: cancelled\n$/);
  });
}

test("a run of a server is not cancelled from here: it is told how", async () => {
  const { run, ended, finish } = await longRun("there");
  const { code, stderr } = await here("runs", "cancel", run);
  assert.equal(code, 1);
  assert.match(stderr, /a server carries it out: give --server/);
  finish();
  assert.equal((await ended).code, 0);
});

test("an interrupt ends the following, and leaves the run alone", async () => {
  const { run, ended, finish } = await longRun("there");
  const [file, ...before] = COMMAND;
  const env = { ...process.env, OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token };
  const child = spawn(file, [...before, "runs", "follow", run], { env, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (text) => {
    said += text;
  });
  await once(child.stdout, "data");
  child.kill("SIGINT");
  const [code] = await once(child, "close");
  assert.equal(code, 130);
  assert.match(said, /is left alone; `ops runs follow /);
  finish();
  assert.equal((await ended).code, 0);
});

test("an interrupt ends the wait for a cancelled run, and says how the run is", async () => {
  const { length } = runIds();
  const flag = path.join(folder, "flag-deaf");
  const script = `trap '' TERM; : > ${flag}; while :; do sleep 0.1; done`;
  const ended = there("run_command", script, "-w", "127.0.0.1");
  await until("the script begins", () => runIds().length > length && existsSync(flag));
  const run = lastRun();
  const cancelling = new Going(["runs", "cancel", run, "--json"], { OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token });
  await cancelling.says("asked run");
  const { code, stdout } = await cancelling.stop("SIGINT");
  assert.equal(code, 130);
  const { status } = JSON.parse(stdout);
  assert.ok(["running", "cancelled"].includes(status), status);
  assert.equal((await ended).code, 130);
});

test("a run whose process was killed is not followed for ever, nor cancelled", async () => {
  const [file, ...before] = COMMAND;
  const { length } = runIds();
  const words = ["run_command", "sleep 30", "-w", "127.0.0.1", "--bucket-dir", dir];
  const child = spawn(file, [...before, ...words], { stdio: "ignore" });
  await until(
    "the run begins",
    () => runIds().length > length && existsSync(path.join(layoutOf(dir).runs, lastRun(), "activity.log")),
  );
  child.kill("SIGKILL");
  await once(child, "close");
  const run = lastRun();
  const { code, stderr } = await here("runs", "follow", run);
  assert.equal(code, 1);
  assert.match(stderr, /was killed: no process carries it out/);
  assert.match((await here("runs", "cancel", run)).stderr, /no process carries it out any more/);
});

test("a failed run is repeated where it failed; one that cannot be is told how to start anew", async () => {
  for (const run of [here, there]) {
    await run("run_command", "[ $WORKER_IP = 127.0.0.1 ]");
    const { code, stdout } = await run("runs", "retry", lastRun());
    assert.equal(code, 1);
    assert.match(stdout, /\n0 of 1 worker/);
  }
  await here("drift");
  const wrong = await there("runs", "retry", lastRun());
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /Cannot repeat a run of the kind drift: start it anew with `ops drift`/);
});

test("the ssh key is made, shown, replaced and deleted; nothing of the making is left", async () => {
  const TMPDIR = temporaryFolder();
  const env = { TMPDIR, OPS_SERVE_TOKEN: server.token };
  const [inFolder, onServer] = [
    ["--bucket-dir", dir],
    ["--server", server.url],
  ];
  for (const where of [inFolder, onServer]) {
    const run = (...words: string[]) => ops([...words, ...where], { env });
    assert.match((await run("ssh-key", "show")).stderr, /no ssh key .*`ops ssh-key create`/);
    const made = await run("ssh-key", "create");
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, /^ssh-ed25519 \S+\n$/);
    assert.match(
      (await run("ssh-key", "show")).stdout,
      new RegExp(`\npublic key +${made.stdout.trim().replaceAll("+", "\\+")}\n$`),
    );
    const again = await run("ssh-key", "create");
    assert.equal(again.code, 2);
    assert.match(again.stderr, /has an ssh key already.*--force/);
    const key = path.join(dir, "secrets", "worker.key");
    assert.ok(existsSync(key), key);
    assert.deepEqual((await run("ssh-key", "set", key)).stdout, made.stdout);
    const argv = [...COMMAND.slice(1), "ssh-key", "set", ...where];
    const piped = spawnSync(COMMAND[0], argv, { input: readFileSync(key), env: { ...process.env, ...env }, encoding: "utf8" });
    assert.deepEqual([piped.status, piped.stdout], [0, made.stdout]);
    assert.match((await run("ssh-key", "set")).stderr, /stdin is empty: expected a private key/);
    assert.match((await run("ssh-key", "set", path.join(source, "workspace/workers.json"))).stderr, /not a private key/);
    assert.deepEqual(JSON.parse((await run("ssh-key", "delete", "--json")).stdout), { deleted: true });
  }
  assert.deepEqual(readdirSync(TMPDIR), []);
});

test("ops exec runs a command with its arguments, or a script, on one worker", async () => {
  const env = { OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token };
  const ways = [
    (words: string[]) => ops(["exec", "--bucket-dir", dir, ...words]),
    (words: string[]) => ops(["exec", ...words], { env }),
  ];
  for (const exec of ways) {
    const words = await exec(["127.0.0.2", "--", "printf", "%s,", "a b", "$HOME", "--help", "it's"]);
    assert.deepEqual([words.code, words.stderr], [0, ""]);
    assert.match(words.stdout, /\n127\.0\.0\.2 \| a b,\$HOME,--help,it's,\n/);
    const script = await exec(["127.0.0.2", "--", "echo $WORKER_IP; exit 3"]);
    assert.equal(script.code, 1);
    assert.match(script.stdout, /\n127\.0\.0\.2 \| 127\.0\.0\.2\n/);
    assert.match(script.stderr, /^error: 127\.0\.0\.2: exit code 3\n/);
    assert.equal((await exec(["127.0.0.2"])).code, 2);
    assert.match((await exec(["127.0.0.9", "--", "true"])).stderr, /127\.0\.0\.9/);
  }
});

test("buckets are made, listed, renamed, initialised and deleted", async () => {
  const made = JSON.parse((await there("buckets", "create", "shop/old", "--json")).stdout);
  assert.match((await there("buckets")).stdout, /^bucket +id +state +last run +at\n[\s\S]*shop\/old +[0-9a-f-]{36} +ok +- +-\n/);
  assert.match((await there("buckets", "rename", "old", "shop/older")).stdout, /is shop\/older now/);
  assert.match((await there("buckets", "init", "shop/older")).stdout, /was up to date \(schema \d+\)/);
  assert.match((await there("info")).stderr, /no bucket is named/);
  assert.match((await there("buckets", "delete", "older")).stderr, /shop\/older is not deleted: give --yes/);
  rmSync(layoutOf(path.join(folder, "root", made.id)).database);
  assert.match((await there("buckets")).stdout, /shop\/older +[0-9a-f-]{36} +not initialised +-/);
  assert.equal((await there("buckets", "delete", "older", "--yes")).code, 0);
  assert.match((await there("buckets", "init", made.id)).stderr, /bucket/);
  assert.match((await there("buckets", "create", "shop")).stderr, /expected PROJECT\/NAME/);
  assert.match((await ops(["buckets", "list"], { cwd: folder })).stderr, /no server is named/);
});

test("a bucket is deleted at a terminal once its name is typed", async () => {
  await there("buckets", "create", "shop/typed");
  const env = { OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token };
  const typed = (name: string) => opsAtTerminal(["buckets", "delete", "typed"], [["to delete it: ", `${name}\n`]], { env });
  const wrong = await typed("typed");
  assert.equal(wrong.code, 1);
  assert.match(wrong.shown, /the secrets and the logs of shop\/typed\.[\s\S]*not deleted: the name was not typed/);
  const ended = await opsAtTerminal(["buckets", "delete", "typed"], [["to delete it: ", "\x04"]], { env });
  assert.equal(ended.code, 1, "Ctrl-D is an answer, too");
  assert.match(ended.shown, /to delete it: .*\r\nops: shop\/typed is not deleted: the name was not typed\r\n$/);
  const right = await typed("shop/typed");
  assert.equal(right.code, 0);
  assert.match(right.shown, /bucket shop\/typed \(.*\) is deleted/);
});

test("ops open prints the address of a page", async () => {
  const run = lastRun();
  for (const [words, page] of [
    [[], ""],
    [["bucket", "shop/live"], ""],
    [["run", run.slice(-8)], `/runs/${run}`],
    [["job", "web"], "/jobs/web"],
    [["worker", "127.0.0.1"], "/workers?q=127.0.0.1"],
    [["revision"], "/source/revisions"],
  ] as const)
    assert.equal((await there("open", ...words)).stdout, `${server.url}/#/buckets/${id}${page}\n`);
  assert.match((await there("open", "jbo")).stderr, /"jbo" has no page/);
});

test("a rollback to a revision is a push rollback", async () => {
  const same = await there("revisions", "rollback");
  assert.equal(same.code, 0);
  assert.match(same.stdout, /^nothing is changed: /);
  writeFileSync(path.join(source, "workspace", "more.txt"), "more\n");
  assert.equal((await there("push", "--dir", source)).code, 0);
  rmSync(path.join(source, "workspace", "more.txt"));
  const [, first] = JSON.parse((await there("revisions", "list", "--json")).stdout);
  assert.match((await there("revisions", "diff", first.id.slice(-8))).stdout, /^removed: workspace\/more\.txt\n$/);
  const back = await there("revisions", "rollback", first.id.slice(-8), "--json");
  assert.equal(back.code, 0, back.stderr);
  const { status, run_id } = JSON.parse(back.stdout);
  assert.equal(status, "succeeded");
  assert.deepEqual(JSON.parse((await there("runs", "show", "--json")).stdout).id, run_id);
});

test("the doctor says the same of a bucket here and on a server, and --server alone examines a root", async () => {
  const told = async (ended: Promise<Ended>) => {
    const { code, stdout } = await ended;
    const { findings } = JSON.parse(stdout) as { findings: Record<string, string>[] };
    return [code, findings.map(({ where, check, grade }) => [where, check, grade])];
  };
  const onServer = await told(there("doctor", "--json"));
  assert.deepEqual(onServer, await told(here("doctor", "--json")));
  assert.match((await there("doctor", "--server", server.url)).stderr, /^ops: write --server=http/);
  const env = { OPS_SERVER: server.url, OPS_SERVE_TOKEN: server.token };
  const ofRoot = await ops(["doctor", "--server", "--root", path.join(folder, "root"), "--json"], { env });
  assert.ok((JSON.parse(ofRoot.stdout).findings as { where: string }[]).every(({ where }) => !where.startsWith("worker ")));
});
