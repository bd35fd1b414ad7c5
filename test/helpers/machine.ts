import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";

/** Whether this process may have mounts of its own. */
export const mayMount = process.getuid?.() === 0 && spawnSync("unshare", ["-m", "true"]).status === 0;

/** Makes /etc, /opt, /run and /var/lib of one shell its own, with ops in /opt/ops; systemctl only writes down its arguments. */
const MACHINE = `
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt && cp -a /etc /mnt/etc && mount --bind /mnt/etc /etc
for folder in /opt /run /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir -p /opt/ops /etc/systemd/system /opt/programs && cp -r bin lib package.json /opt/ops && chmod -R a+rX /opt
touch /opt/ops/node && mount --bind "$NODE" /opt/ops/node
printf '#!/bin/sh\\necho "systemctl $*" >> /mnt/asked\\n' > /opt/programs/systemctl && chmod +x /opt/programs/systemctl
PATH=/opt/programs:$PATH
ops() { /opt/ops/node /opt/ops/bin/ops.js "$@" 2>&1 || echo "exit $?"; }
look() { stat -c '%A %U:%G %n' "$@"; }
`;

/** What a script prints on a machine of its own. */
export function onMachine(script: string): string {
  const env = { ...process.env, NODE: process.execPath, HOME: "/mnt" };
  const run = spawnSync("unshare", ["-m", "sh", "-euc", MACHINE + script], { cwd: PROGRAM_ROOT, encoding: "utf8", env });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  return run.stdout;
}
