import assert from "node:assert/strict";
import { copyFileSync, existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Launcher } from "../../lib/core/spawn.ts";
import { PROGRAM } from "../../scripts/local-server.ts";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { makeBucket } from "../helpers/workspace.ts";

/** More than have a shell open at a time with so few descriptors. */
const HOSTS = Array.from({ length: 40 }, (_, index) => `127.0.1.${index + 1}`);
const FILES = 128;

test("CP-398 with few descriptors a deploy goes to more workers than can stay open, and each verdict is right", async (t) => {
  const fleet = await SshFleet.start(t, { hosts: HOSTS, sshd: ["MaxStartups 100"] });
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const { dir, layout, bucketId } = await makeBucket(t, {
    workers: HOSTS.map((host) => ({ host, root: fleet.worker(host).root, ssh_user, ssh_port })),
    jobs: { web: { version: "1.0.0", selectors: ["worker"], max_concurrent_starts: 0 } },
    files: {
      "ops.conf": 'ssh_key = "worker.key"\nssh_concurrency = 64\n',
      "workspace/jobs/web/Makefile": "start restart stop:\n\t@touch running\n",
    },
  });
  copyFileSync(fleet.sshd.clientKey, path.join(layout.secrets, "worker.key"));
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  const ops = (...args: string[]) => {
    const limited = ["sh", "-c", `ulimit -n ${FILES}; exec "$@"`, "sh", process.execPath, PROGRAM] as const;
    return new Launcher(process.env).run([...limited, ...args, "--bucket-dir", dir]);
  };
  const deployed = await ops("deploy", "--build");
  assert.equal(deployed.exitCode, 0, deployed.stdout + deployed.stderr);
  for (const host of HOSTS) assert.ok(existsSync(path.join(fleet.worker(host).root, bucketId, "jobs/web/running")), host);
  const command = await ops("run_command", "test -f jobs/web/running", "--concurrency", String(HOSTS.length));
  assert.equal(command.exitCode, 0, command.stdout + command.stderr);
  assert.equal((await ops("drift")).exitCode, 0);
  const { stdout } = await ops("doctor");
  assert.match(
    stdout,
    /at most 128: 5 commands at a time, connections of 6 workers ready for the next one; ssh_concurrency is 64/,
  );
});
