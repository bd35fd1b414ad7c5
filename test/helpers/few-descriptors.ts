import assert from "node:assert/strict";
import { copyFileSync, existsSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { Launcher } from "../../lib/core/spawn.ts";
import { PROGRAM } from "../../scripts/local-server.ts";
import { SshFleet } from "./ssh-fleet.ts";
import { makeBucket } from "./workspace.ts";

/**
 * Deploys to so many workers over ssh, then runs a command and a check for drift on all of them, with `files` as the limit
 * of open files. Throws where a verdict is wrong. Answers what `ops doctor` says about the limit.
 */
export async function fewDescriptors(t: Pick<TestContext, "after">, workers: number, files: number): Promise<string> {
  const hosts = Array.from({ length: workers }, (_, index) => `127.0.1.${index + 1}`);
  const fleet = await SshFleet.start(t, { hosts, sshd: ["MaxStartups 100"] });
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const { dir, layout, bucketId } = await makeBucket(t, {
    workers: hosts.map((host) => ({ host, root: fleet.worker(host).root, ssh_user, ssh_port })),
    jobs: { web: { version: "1.0.0", selectors: ["worker"], max_concurrent_starts: 0 } },
    files: {
      "ops.conf": 'ssh_key = "worker.key"\nssh_concurrency = 64\n[ssh_options]\nKexAlgorithms = "curve25519-sha256"\n',
      "workspace/jobs/web/Makefile": "start restart stop:\n\t@touch running\n",
    },
  });
  copyFileSync(fleet.sshd.clientKey, path.join(layout.secrets, "worker.key"));
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  const ops = (...args: string[]) => {
    const limited = ["sh", "-c", `ulimit -n ${files}; exec "$@"`, "sh", process.execPath, PROGRAM] as const;
    return new Launcher(process.env).run([...limited, ...args, "--bucket-dir", dir]);
  };
  const deployed = await ops("deploy", "--build");
  assert.equal(deployed.exitCode, 0, deployed.stdout + deployed.stderr);
  for (const host of hosts) assert.ok(existsSync(path.join(fleet.worker(host).root, bucketId, "jobs/web/running")), host);
  const command = await ops("run_command", "test -f jobs/web/running", "--concurrency", String(workers));
  assert.equal(command.exitCode, 0, command.stdout + command.stderr);
  const drift = await ops("drift");
  assert.equal(drift.exitCode, 0, drift.stdout + drift.stderr);
  const { stdout } = await ops("doctor");
  return /at most \d+: .*/.exec(stdout)?.[0] ?? stdout;
}
