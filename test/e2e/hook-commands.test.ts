import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { ops, PROGRAM } from "../../scripts/local-server.ts";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { until } from "../helpers/temporary.ts";
import { makeBucket } from "../helpers/workspace.ts";

const LOCAL = "127.0.0.1";
const REMOTE = "127.0.0.2";

const ACT = `import ops
host = ops.allocation_ip()
print("there:", ops.run_ssh(host, "pwd; cat jobs/web/Makefile | wc -l").stdout.split())
print("runner:", ops.run_runner_target("status").stdout.strip())
print("make:", ops.run_make_target("status").stdout.strip().splitlines()[-2])
`;
const HANG = 'import ops\nops.run_ssh(ops.allocation_ip(), "sleep 300 & sleep 300")\n';

/** While there is a file `wait` on the worker, the deploy waits there. */
const PREPARE = `import ops
print("prepared:", ops.run_ssh(ops.allocation_ip(), "while [ -e wait ]; do : >at; sleep 0.02; done; echo done").stdout)
`;

/** A bucket with a job on this machine and on a worker over ssh, deployed. */
async function deployed(t: TestContext) {
  const fleet = await SshFleet.start(t, { hosts: [REMOTE, LOCAL] });
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const entry = (host: string) => ({ host, root: fleet.worker(host).root });
  const makefile = 'start stop restart:\n\t@true\nstatus:\n\t@echo "in $(CURDIR)"\n\t@true\n';
  const { dir, layout, bucketId } = await makeBucket(t, {
    workers: [
      { ...entry(LOCAL), connection: "local" },
      { ...entry(REMOTE), ssh_user, ssh_port },
    ],
    jobs: {
      web: {
        version: "1.0.0",
        selectors: ["worker"],
        max_concurrent_upgrades: 2,
        hooks: { act: { executed_on: ["cli"] }, hang: { executed_on: ["cli"] }, prepare: { executed_on: ["pre_deploy"] } },
      },
    },
    files: {
      "ops.conf": 'ssh_key = "worker.key"\n',
      "workspace/jobs/web/Makefile": makefile,
      "workspace/jobs/web/_hooks/act.py": ACT,
      "workspace/jobs/web/_hooks/hang.py": HANG,
      "workspace/jobs/web/_hooks/prepare.py": PREPARE,
    },
  });
  copyFileSync(fleet.sshd.clientKey, path.join(layout.secrets, "worker.key"));
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  const done = await ops(["deploy", "--build", "--bucket-dir", dir]);
  assert.equal(done.code, 0, done.stdout + done.stderr);
  const folder = (host: string) => path.join(fleet.worker(host).root, bucketId);
  return { fleet, dir, folder };
}

test("HR-028 HR-291 HR-292 HR-293 a hook runs commands and targets on its worker, over ssh and right here", async (t) => {
  const { dir, folder } = await deployed(t);
  const { code, stdout, stderr } = await ops(["hooks", "act", "web", "--bucket-dir", dir]);
  assert.equal(code, 0, stdout + stderr);
  for (const host of [LOCAL, REMOTE]) {
    const said = [...stdout.matchAll(new RegExp(`web@${host} \\| (.*)`, "g"))].map(([, line]) => line);
    const job = path.join(folder(host), "jobs", "web");
    assert.deepEqual(said, [`there: ['${folder(host)}', '5']`, `runner: in ${job}`, `make: in ${job}`]);
  }
});

test("HR-028 a cancelled hooks command leaves no command running on the workers", async (t) => {
  const { fleet, dir } = await deployed(t);
  const child = spawn(process.execPath, [PROGRAM, "hooks", "hang", "--bucket-dir", dir], { stdio: "ignore" });
  await until("the commands run on both workers", () => fleet.processes.length >= 6);
  const ended = once(child, "exit");
  child.kill("SIGINT");
  assert.deepEqual(await ended, [130, null]);
  await until("nothing runs on the workers", () => fleet.processes.length === 0);
});

test("HR-028 CP-412 a deploy whose connection is cut while a pre_deploy hook runs a command on the worker succeeds", async (t) => {
  const { fleet, dir, folder } = await deployed(t);
  const file = (name: string) => path.join(folder(REMOTE), name);
  writeFileSync(file("wait"), "");
  const deploy = ops(["deploy", "--force", "--bucket-dir", dir]);
  await until("the hook's command", () => existsSync(file("at")));
  const before = fleet.sessions;
  fleet.cut();
  await until("the connections to be gone", () => !fleet.sessions.some((pid) => before.includes(pid)));
  rmSync(file("wait"));
  const { code, stdout, stderr } = await deploy;
  assert.equal(code, 0, stdout + stderr);
  assert.match(stdout, new RegExp(`web@${REMOTE} \\| prepared: done`));
});
