import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer, PROGRAM, type Run } from "../../scripts/local-server.ts";
import { writeTree } from "../helpers/sources.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

/** The names of a job, of a worker and of a part of a path, each of which is the value of a secret as well. */
const [JOB, WORKER, PART] = ["frontend", "localhost", "appender"] as const;
const FILE = `conf/org.${PART}/log.conf`;
/** Every line of output on the worker names all three. */
const SAID = `${JOB} ${WORKER} ${PART}`;
const MASKED = "*** *** ***";

const place = temporaryFolder();
const [root, worker, source] = ["root", "worker", "source"].map((name) => path.join(place, name)) as [string, string, string];
let server: LocalServer;
let bucket: string;

function writeSource(version: number, makefile = `@echo "says ${SAID}"`): void {
  writeTree(source, {
    "ops.conf": "",
    "workspace/workers.json": JSON.stringify([{ host: WORKER, connection: "local", root: worker }]),
    [`workspace/jobs/${JOB}/manifest.json`]: JSON.stringify({ version: "1.0.0", selectors: ["worker"] }),
    [`workspace/jobs/${JOB}/Makefile`]: `start stop restart reload status:\n\t${makefile}\n`,
    [`workspace/jobs/${JOB}/${FILE}`]: `version ${version}\ntext ${SAID} ${version}\n`,
  });
}

async function push(): Promise<void> {
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, 0, stderr);
}

async function setSecret(key: string, value: string): Promise<void> {
  const args = ["kv", "set-secret", JOB, key, "--bucket-dir", path.join(root, bucket)];
  const child = spawn(process.execPath, [PROGRAM, ...args]);
  child.stdin.end(value);
  assert.deepEqual(await once(child, "exit"), [0, null]);
}

async function run(kind: string, params: unknown = {}): Promise<{ run: Run; text: string }> {
  let text = "";
  const ended = await server.run(bucket, kind, params, (more) => {
    text += more;
  });
  return { run: ended, text };
}

// biome-ignore lint/suspicious/noExplicitAny: each kind of run has a result of its own.
const resultOf = (one: Run): any => one.result;

before(async () => {
  server = await LocalServer.start(root);
  bucket = await server.createBucket();
  writeSource(1);
  await push();
  for (const [index, value] of [JOB, WORKER, PART].entries()) await setSecret(`key${index}`, value);
  assert.equal((await run("deploy")).run.status, "succeeded");
});
after(async () => {
  await server.stop();
});

test("the build warns once of each secret whose value is a name, and names both", async () => {
  const { run: built, text } = await run("build");
  assert.equal(built.status, "succeeded", text);
  const { warnings } = resultOf(built);
  for (const [index, value] of [JOB, WORKER].entries()) {
    const sentence = `secrets/job/${JOB}/key${index}: the secret's value equals the name "${value}" in this bucket, and names are not masked; give the secret another value`;
    assert.deepEqual(
      warnings.filter((one: string) => one.includes(`key${index}:`)),
      [sentence],
    );
    assert.equal(text.split(`warning: ${sentence}`).length, 2, text);
  }
});

test("names stay in Activity, in the fields of the log and in the API; what a program says is masked", async () => {
  const { run: deployed, text } = await run("deploy", { force: true });
  assert.equal(deployed.status, "succeeded", text);
  assert.match(text, new RegExp(`^${JOB}@${WORKER} \\| says ${RegExp.escape(MASKED)}$`, "m"));
  assert.match(text, new RegExp(`^${JOB}: deployed in`, "m"));
  const [job] = resultOf(deployed).jobs;
  assert.deepEqual([job.job, job.allocations[0].worker], [JOB, WORKER]);
  const log = readFileSync(path.join(root, bucket, "logs", `${WORKER}.log`), "utf8");
  assert.match(log, new RegExp(`worker=${WORKER} job=${JOB} .*stream=stdout msg="says ${RegExp.escape(MASKED)}"`));
  const { body } = await server.call<{ allocations?: unknown }>("GET", `/api/buckets/${bucket}/cat/deployments`);
  assert.ok(JSON.stringify(body).includes(JOB) && JSON.stringify(body).includes(WORKER));
});

test("progress names the worker", async (t) => {
  const gate = path.join(place, "gate");
  const command = `while [ ! -e ${gate} ]; do sleep 0.05; done`;
  const id = await server.startRun(bucket, "run_command", { workers: [WORKER], command });
  t.after(() => rmSync(gate, { force: true }));
  let waiting: { on: string }[] = [];
  await until("the run to wait for the worker", async () => {
    const { body } = await server.call<{ progress: { waiting: { on: string }[] } | null; status: string }>(
      "GET",
      `/api/buckets/${bucket}/runs/${id}`,
    );
    assert.equal(body.status, "running");
    waiting = body.progress?.waiting ?? [];
    return waiting.length > 0;
  });
  writeFileSync(gate, "");
  assert.equal((await server.follow(bucket, id)).status, "succeeded");
  assert.match(waiting[0]?.on ?? "", new RegExp(`^${WORKER}: `));
});

test("a plan names jobs, workers and paths, its diffs are masked, and it is carried out", async () => {
  writeSource(2);
  await push();
  const { run: planned, text } = await run("deploy", { dry_run: true });
  assert.equal(planned.status, "succeeded", text);
  const kept = JSON.parse(readFileSync(path.join(root, bucket, "logs", "runs", planned.id, "plan.json"), "utf8"));
  for (const plan of [resultOf(planned), kept]) {
    const [job] = plan.waves[0].jobs;
    assert.deepEqual([job.job, job.allocations[0].worker], [JOB, WORKER]);
    const [file] = job.allocations[0].files;
    assert.equal(file.path, FILE);
    assert.match(file.diff, /^-text \*\*\* \*\*\* \*\*\* 1\n[\s\S]*^\+text \*\*\* \*\*\* \*\*\* 2$/m);
  }
  assert.ok(text.includes(FILE), text);
  const { run: deployed, text: said } = await run("deploy", { plan: planned.id });
  assert.equal(deployed.status, "succeeded", `${deployed.error}\n${said}`);
});

test("drift names paths, and masks what they hold", async () => {
  const file = path.join(worker, bucket, "jobs", JOB, FILE);
  const before = readFileSync(file);
  writeFileSync(file, `version 2\nother ${SAID}\n`);
  const { run: looked, text } = await run("drift");
  writeFileSync(file, before);
  const [found] = resultOf(looked).workers[0].allocations;
  assert.equal(found.job, JOB);
  assert.deepEqual(
    found.files.map((one: { path: string }) => one.path),
    [FILE],
  );
  assert.match(found.files[0].diff, /^\+other \*\*\* \*\*\* \*\*\*$/m);
  assert.ok(text.includes(`changed ${FILE}`), text);
});

test("an error names the job and the worker and masks what the program said; a retry does the same again", async () => {
  const flag = path.join(place, "broken");
  writeSource(3, `@if [ -e ${flag} ]; then echo "cannot ${SAID}" >&2; exit 3; fi`);
  await push();
  writeFileSync(flag, "");
  const { run: failed, text } = await run("deploy");
  assert.equal(failed.status, "failed", text);
  const [job] = resultOf(failed).jobs;
  assert.deepEqual([job.job, job.allocations[0].worker], [JOB, WORKER]);
  const { error } = job.allocations[0];
  assert.match(error, new RegExp(`of job ${JOB} on ${WORKER} failed`));
  assert.ok(error.includes(`cannot ${MASKED}`), error);
  assert.match(failed.error ?? "", new RegExp(`${JOB}.*cannot ${RegExp.escape(MASKED)};`));
  rmSync(flag);
  const { run: again, text: said } = await run("deploy", { retry_of: failed.id });
  assert.equal(again.status, "succeeded", `${again.error}\n${said}`);
  assert.deepEqual(again.params.jobs, [JOB]);
});

test("a command that somebody typed is masked as a whole, and not repeated", async () => {
  const { run: ended } = await run("run_command", { workers: [WORKER], command: `echo ${SAID}; false` });
  assert.equal(ended.params.command, `echo ${MASKED}; false`);
  assert.deepEqual(ended.params.workers, [WORKER]);
  const [result] = resultOf(ended).workers;
  assert.deepEqual([result.worker, result.output], [WORKER, `${MASKED}\n`]);
  const { status, body } = await server.call<{ error: string }>("POST", `/api/buckets/${bucket}/run_command`, {
    retry_of: ended.id,
  });
  assert.deepEqual([status, body.error], [409, "retry_impossible"]);
});
