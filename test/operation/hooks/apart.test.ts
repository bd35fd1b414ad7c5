import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogJobs, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { identify } from "../../../lib/core/process.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { sweepApart } from "../../../lib/operation/hooks/apart.ts";
import { HookSession } from "../../../lib/operation/hooks/hooks.ts";
import { Deploys } from "../../helpers/deploys.ts";
import { hooksOf } from "../../helpers/hooks.ts";
import { NEEDS_ROOT, NOBODY } from "../../helpers/other-user.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { processesIn } from "../../helpers/worker.ts";

const A = "127.0.0.1";
const options = { skip: NEEDS_ROOT };

/** A bucket whose job has one hook of this text; `run` is a session of another user that runs the hook some times. */
async function setUp(t: TestContext, script: string, files: Record<string, string> = {}) {
  const deploys = await Deploys.make(t);
  const spec = { web: { manifest: hooksOf({ go: ["cli"] }), files: { "_hooks/go.py": script, ...files } } };
  await deploys.build(spec, { hosts: [A] });
  const { bucket } = deploys;
  const run = async (times = 1) => {
    const context = { ...bucket.context("hooks"), hookUser: NOBODY };
    const fleet = new Fleet(context, catalogWorkers(bucket.db));
    const session = new HookSession(context, fleet);
    const job = catalogJobs(bucket.db)[0] as NonNullable<ReturnType<typeof catalogJobs>[0]>;
    try {
      for (let count = 0; count < times; count++) await session.run({ kind: "cli", job });
    } finally {
      await session[Symbol.asyncDispose]();
      await fleet[Symbol.asyncDispose]();
      context.log.close();
    }
  };
  return { bucket, run, said: () => bucket.activity.join("") };
}

/** The folders of sessions of this process. */
const ours = () => readdirSync(tmpdir()).filter((name) => name.startsWith(`ops-hooks-${process.pid}-`));

test("HR-351 the session's folder has the source and the staged files, and nothing else of the bucket", options, async (t) => {
  const script = `import os
for folder, _, names in os.walk("."):
    for name in names: print("file", os.path.join(folder, name), oct(os.stat(os.path.join(folder, name)).st_mode & 0o777))
print("mode", oct(os.stat(".").st_mode & 0o777), oct(os.stat("..").st_mode & 0o777), os.stat("..").st_uid)
`;
  const { bucket, run, said } = await setUp(t, script, { "conf/a": "1", "run.sh": "#!/bin/sh\n", "conf/t.tpl": "{{ .Job }}" });
  mkdirSync(path.join(bucket.layout.jobs, "web/_hooks/.venv"));
  writeFileSync(path.join(bucket.layout.jobs, "web/_hooks/.venv/x"), "");
  await run();
  const job = ["Makefile", "certs/ca.crt", "conf/a", "run.sh", "manifest.json"];
  const found = [...said().matchAll(/file (\S+) (\S+)/g)].map(([, file, mode]) => [file, mode]);
  const names = found.map(([file]) => String(file));
  for (const name of [
    ...["./workspace/workers.json", "./workspace/disabled.json", "./workspace/jobs/web/_hooks/go.py", "./tmp/workers.json"],
    ...["_hooks/go.py", "_hooks/ops.py", "_hooks/ops.ts", "_hooks/certs/ca.crt", "conf/t", ...job].map(
      (file) => `./tmp/workers/${A}/jobs/web/${file}`,
    ),
  ])
    assert.ok(names.includes(name), `${name} is not in ${names.join(" ")}`);
  assert.deepEqual(
    names.filter((name) => !/^\.\/(workspace|tmp)\//.test(name) || name.includes(".venv")),
    [],
  );
  for (const [file, mode] of found) assert.match(String(mode), /^0o[67]00$/, file);
  assert.match(said(), /mode 0o700 0o710 0\n/);
  assert.deepEqual(ours(), []);
});

test(
  "HR-356 links that a script puts into its folder lead root nowhere: nothing is written, read or removed there",
  options,
  async (t) => {
    const victim = temporaryFolder(t);
    chmodSync(victim, 0o755);
    for (const name of ["web", "jobs", "keep"]) mkdirSync(path.join(victim, name));
    writeFileSync(path.join(victim, "keep", "file"), "stays");
    const script = `import os, shutil
print("staged anew", os.path.exists("tmp/workers/${A}/jobs/web/_hooks/ops.py"))
for place in ("tmp/workers/${A}/jobs/web", "tmp/workers/${A}", "workspace/jobs", "workspace"):
    if os.path.islink(place): os.remove(place)
    else: shutil.rmtree(place, ignore_errors=True)
    os.symlink("${victim}", place)
os.symlink("${victim}/keep", "tmp/gone")
`;
    const { bucket, run, said } = await setUp(t, script);
    // The second script is staged over the links of the first: this user may write behind none of them.
    await assert.rejects(run(2), { message: /Cannot write to .* as nobody: / });
    assert.equal(said().match(/staged anew True/g)?.length, 1);
    assert.deepEqual(readdirSync(victim, { recursive: true }).sort(), ["jobs", "keep", "keep/file", "web"]);
    assert.equal(readFileSync(path.join(bucket.dir, "workspace/jobs/web/_hooks/go.py"), "utf8"), script);
    assert.deepEqual(ours(), []);
  },
);

test("a folder that a script has closed, or fills from the background, goes all the same", options, async (t) => {
  const script = `import os, subprocess
os.makedirs("deep/er")
open("deep/er/file", "w").close()
os.chmod("deep", 0)
subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 400 ]; do i=$((i+1)); : > file$i 2>/dev/null; done; sleep 600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
os.chmod(".", 0)
`;
  const { run } = await setUp(t, script);
  const before = new Set(processesIn(tmpdir()));
  await run();
  assert.deepEqual(ours(), []);
  for (const pid of processesIn(tmpdir()))
    if (!before.has(pid) && statSync(`/proc/${pid}`, { throwIfNoEntry: false })?.uid === NOBODY.uid) process.kill(pid);
});

test("what killed sessions left is swept, what lives or belongs to others stays", options, async (t) => {
  const gone = spawn("true");
  const { pid } = gone;
  const born = identify(pid as number)?.start_time ?? "1";
  await once(gone, "exit");
  const own = identify(process.pid);
  const [dead, bare, alive, strangers] = [
    `ops-hooks-${pid}-${born}-dead00`,
    `ops-hooks-${pid}-${born}-bare00`,
    `ops-hooks-${own?.pid}-${own?.start_time}-live00`,
    `ops-hooks-${pid}-${born}-other0`,
  ].map((name) => path.join(tmpdir(), name)) as [string, string, string, string];
  for (const folder of [dead, bare, alive, strangers]) mkdirSync(folder);
  const within = path.join(dead, "bucket");
  mkdirSync(path.join(within, "secret"), { recursive: true, mode: 0o700 });
  const victim = temporaryFolder(t);
  writeFileSync(path.join(victim, "file"), "");
  symlinkSync(victim, path.join(within, "link"));
  for (const place of [path.join(within, "secret"), within]) chownSync(place, NOBODY.uid, NOBODY.gid);
  chmodSync(within, 0);
  chmodSync(dead, 0o711);
  chownSync(strangers, NOBODY.uid, NOBODY.gid);
  t.after(() => new Launcher({}).run(["rm", "-r", alive, strangers]));
  await sweepApart(new Launcher({ PATH: process.env.PATH }), NOBODY);
  assert.deepEqual([dead, bare, alive, strangers].map(existsSync), [false, false, true, true]);
  assert.equal(existsSync(path.join(victim, "file")), true);
});

test("a cancel ends the making of the folder too, and leaves nothing", options, async (t) => {
  const { bucket } = await setUp(t, "");
  const stop = new AbortController();
  const context = { ...bucket.context("hooks", stop.signal), hookUser: NOBODY };
  const fleet = new Fleet(context, catalogWorkers(bucket.db));
  const session = new HookSession(context, fleet);
  const job = catalogJobs(bucket.db)[0] as NonNullable<ReturnType<typeof catalogJobs>[0]>;
  const running = assert.rejects(session.run({ kind: "cli", job }), { code: "cancelled" });
  await until("a folder", () => ours().length === 1);
  stop.abort();
  await running;
  await session[Symbol.asyncDispose]();
  await fleet[Symbol.asyncDispose]();
  assert.deepEqual(ours(), []);
});
