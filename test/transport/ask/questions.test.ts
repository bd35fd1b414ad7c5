import assert from "node:assert/strict";
import { test } from "node:test";
import { examineWorker, lastLogs, makeStatus, readWorkerJson } from "../../../lib/transport/ask/inspect.ts";
import { TOOLS, takeReading } from "../../../lib/transport/ask/readings.ts";
import { isCut, jobsJson, lastTarget, RUNNER_EXIT, runTarget, workerJson } from "../../../lib/transport/ask/runner.ts";
import { scriptText } from "../../../lib/transport/base/scripts.ts";
import type { ScriptOptions, Transport } from "../../../lib/transport/base/transport.ts";
import { compareTrees, readText } from "../../../lib/transport/files/compare.ts";
import { adoptTree, discardJob, syncTree, vacate, WORKER_TREE } from "../../../lib/transport/files/sync.ts";
import { answeringWorker, syncFile } from "../../helpers/worker.ts";

const { signal } = new AbortController();
const FILES = [syncFile("conf/a", "1")];
const WEB = { name: "web", folder: "jobs/web", files: FILES };
const ADOPTED = { isOwn: () => false, isBrought: () => false };
const LOOK = { input: "file jobs/web/conf/a\n", isShort: true };

type Question = (transport: Transport) => Promise<unknown>;

/** What is asked, how a sentence about its failure begins, its time in seconds, and how it is asked. */
const QUESTIONS: [what: string, ask: Question, doing: string, seconds: number, options: ScriptOptions][] = [
  [
    "an examination",
    (transport) => examineWorker(transport, ["sh", "tar"], signal),
    "Cannot examine the worker",
    20,
    { args: ["/srv/b", "sh", "tar"], isShort: true, isFolderOptional: true },
  ],
  [
    "the logs of a job",
    (transport) => lastLogs(transport, "web", { files: 3, bytes: 10, timeoutMs: 5_000, signal }),
    "Cannot read the logs",
    5,
    { args: ["web", "3", "10"], env: { LC_ALL: "C" }, keepBytes: 60 },
  ],
  [
    "worker.json",
    (transport) => readWorkerJson(transport, signal),
    "Cannot read worker.json on w1",
    60,
    { args: ["worker.json", "65536"], isShort: true },
  ],
  [
    "a reading",
    (transport) => takeReading(transport, "facts", signal),
    "Cannot ask the worker",
    30,
    { args: TOOLS, isFolderOptional: true },
  ],
  [
    "the last target",
    (transport) => lastTarget(transport, "web", { signal }),
    "Cannot read what ran last for web on w1",
    60,
    { args: ["web"], isShort: true },
  ],
  [
    "a comparison",
    (transport) => compareTrees(transport, new Map([["web", { "conf/a": "644:0" }]]), signal),
    "Cannot compare the files on w1",
    300,
    {
      args: ["b", "", "web"],
      ...LOOK,
      input: `${LOOK.input}folder jobs/web\nfolder jobs/web/conf\n`,
      isFolderOptional: false,
      keepBytes: 65_536,
    },
  ],
  [
    "the text of a file",
    (transport) => readText(transport, { job: "web", path: "conf/a", bytes: 10 }, signal),
    "Cannot read web/conf/a on w1",
    60,
    { args: ["jobs/web/conf/a", "11"], keepBytes: 33 },
  ],
  ["the removal of a job", (transport) => discardJob(transport, "web", signal), "Cannot clean up on w1", 900, { args: ["web"] }],
  ["the removal of all", (transport) => vacate(transport, signal), "Cannot clean up on w1", 900, { args: ["b", "w1"] }],
];

for (const [what, ask, doing, seconds, options] of QUESTIONS)
  test(`${what} is asked for with its arguments and its time, and fails in one sentence`, async () => {
    const late = answeringWorker({ reason: "timeout", exitCode: null });
    await assert.rejects(ask(late.transport), { code: "timeout", message: `${doing}: the script still ran after ${seconds} s` });
    const [{ onLine: _, ...asked } = {}] = late.asked;
    assert.deepEqual(asked, { ...options, timeoutMs: seconds * 1_000, signal });
    for (const [answer, why] of [
      [{ exitCode: 3, stderr: " one\ntwo\n" }, "one; two"],
      [{ exitCode: 3, stderr: "x".repeat(1_001) }, "x".repeat(1_000)],
      [{ exitCode: 3 }, "exit code 3"],
      [{ exitCode: null, signal: "SIGKILL" }, "ended by SIGKILL"],
    ] as const)
      await assert.rejects(ask(answeringWorker(answer).transport), { code: "failed", message: `${doing}: ${why}` });
    await assert.rejects(ask(answeringWorker({ reason: "cancelled" }).transport), { code: "cancelled" });
  });

test("a sync and an adoption look first, each script up to 15 minutes unless its caller says otherwise", async () => {
  for (const [ask, doing, args] of [
    [(to: Transport) => syncTree(to, WEB), "Cannot sync web to w1", ["web"]],
    [(to: Transport) => adoptTree(to, WEB, ADOPTED), "Cannot adopt web on w1", ["web"]],
    [
      (to: Transport) => syncTree(to, { name: WORKER_TREE, folder: ".", files: FILES }),
      "Cannot sync the worker's files to w1",
      [WORKER_TREE],
    ],
  ] as const) {
    const { transport, asked } = answeringWorker({ reason: "timeout" });
    await assert.rejects(ask(transport), { message: `${doing}: the script still ran after 900 s` });
    assert.deepEqual([asked.length, asked[0]?.args?.slice(2), asked[0]?.isShort], [1, args, true]);
  }
  const { transport, asked } = answeringWorker({ reason: "timeout" });
  const limits = { timeoutMs: 7_000, signal };
  await assert.rejects(syncTree(transport, WEB, limits), { message: /after 7 s$/ });
  await assert.rejects(adoptTree(transport, WEB, ADOPTED, limits), { message: /after 7 s$/ });
  assert.deepEqual(
    asked.map((one) => one.signal),
    [signal, signal],
  );
});

test("an examination tells locks, what was cut off, sizes in bytes, and by how much the clock there is ahead", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_500 });
  const examined = async (clock: number) => {
    const facts = ["missing tar", "blocked /srv/b", "unwritable jobs", "disk 3 7", "held .sync/a.lock"];
    const left = ["left .sync/b.lock", "cut .sync/web/", "left .runner/c.lock"];
    const stdout = [`clock ${clock}`, ...facts, ...left, "end", ""].join("\n");
    return await examineWorker(answeringWorker({ stdout }).transport, [], signal);
  };
  assert.deepEqual(await examined(1_000), {
    missing: ["tar"],
    blocked: "/srv/b",
    unwritable: ["jobs"],
    aheadSeconds: 0,
    freeBytes: 3_072,
    diskBytes: 7_168,
    held: [".sync/a.lock"],
    left: [".sync/b.lock", ".runner/c.lock", ".sync/web/"],
  });
  const ahead = [999, 1_001, 1_005, 990].map(async (clock) => (await examined(clock)).aheadSeconds);
  assert.deepEqual(
    (await Promise.all(ahead)).map((one) => one + 0),
    [0, 0, 4, -9],
  );
  await assert.rejects(examineWorker(answeringWorker({ stdout: "clock 1\ndisk 1\nend\n" }).transport, [], signal), {
    message: `Cannot understand the worker's answer: "1" is not what disk can be`,
  });
});

test("the logs of a job are told with what each line says, and what stands before the first name is none", async () => {
  const { transport } = answeringWorker({ stdout: "|lost\n>a b\n|one\n|\nnoise\n|>two\n>c\n>d\n|three\n" });
  assert.deepEqual(await lastLogs(transport, "web", { files: 2, bytes: 10, timeoutMs: 1 }), [
    { file: "a b", text: "one\n\n>two\n" },
    { file: "c", text: "" },
    { file: "d", text: "three\n" },
  ]);
});

test("the last target is that of the worker's present start; a record of another form is told", async () => {
  const told = async (stdout: string) => await lastTarget(answeringWorker({ stdout }).transport, "web");
  assert.deepEqual(await told("abc start boot\nboot\n"), { hash: "abc", target: "start" });
  assert.deepEqual(await told("- start boot\nboot\n"), { hash: undefined, target: "start" });
  assert.equal(await told("abc start boot\nother\n"), undefined);
  assert.equal(await told(""), undefined);
  for (const wrong of ["x\nabc start boot\nboot\n", "abc start boot\nboot\nmore\n", "abc start boot\nboot", "abc start\nboot\n"])
    await assert.rejects(told(wrong), {
      code: "failed",
      message: "Cannot read what ran last for web on w1: the record cannot be understood",
    });
});

test("a target gets its variables, survives its connection, and leaves the runner a second to say whom it waited for", async () => {
  const { transport, asked } = answeringWorker();
  const [onLine, onBegin, env] = [() => {}, () => {}, { NEW_VERSION: "2" }];
  const order = { job: "web", target: "start", runId: "r1", onLine, onBegin, env, signal };
  await runTarget(transport, { ...order, timeoutMs: 5_900, hash: "h", overRuns: ["r2", "r3"] });
  const survivesAs = "`make start` of web (run r1)";
  const options = { env, onLine, onBegin, signal, survivesAs };
  assert.deepEqual(asked[0], { args: ["web", "start", "r1", "h", "4", "r2,r3"], ...options, timeoutMs: 5_900 });
  await runTarget(transport, { ...order, timeoutMs: 400 });
  assert.deepEqual(asked[1]?.args, ["web", "start", "r1", "-", "0", ""]);
});

test("a question for the status takes its limits along", async () => {
  const { transport, asked } = answeringWorker();
  const limits = { env: { A: "1" }, onLine: () => {}, keepBytes: 9, timeoutMs: 8, signal };
  await makeStatus(transport, "web", limits);
  assert.deepEqual(asked, [{ args: ["web"], ...limits }]);
});

test("a target was cut where it may have run without success, not where it succeeded or was refused", () => {
  assert.deepEqual(
    [0, ...Object.values(RUNNER_EXIT), 1, 2, 63, 72, 143, null].filter((exitCode) => isCut({ exitCode })),
    [1, 2, 63, 72, 143, null],
  );
});

test("the files for bin/runner have a line for each field: the runner searches lines", () => {
  const jobs = ["c", "a", "b"].map((job) => ({ job, disabled: job === "b" }));
  const lines = ["a", "b", "c"].map((job) => `   {\n      "job": "${job}",\n      "disabled": ${job === "b" ? 1 : 0}\n   }`);
  assert.equal(jobsJson(jobs), `[\n${lines.join(",\n")}\n]\n`);
  const facts = { bucketId: "b", workerId: "w", workerIp: "10.0.0.1", labels: ["z", "a"], updateSeq: 3 };
  const labels = '   "labels": [\n      "a",\n      "z"\n   ],\n';
  const fields = `   "bucket_id": "b",\n   "worker_id": "w",\n   "worker_ip": "10.0.0.1",\n${labels}   "update_seq": 3\n`;
  assert.equal(workerJson(facts), `{\n${fields}}\n`);
  assert.deepEqual(facts.labels, ["z", "a"]);
});

test("a script goes to a worker without comments and indentation", () => {
  for (const name of ["look", "runner", "facts"] as const) assert.doesNotMatch(scriptText(name), /^(?:\s|#)/m, name);
});
