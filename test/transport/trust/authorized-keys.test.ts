import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { keyHolders } from "../../../lib/transport/trust/authorized-keys.ts";

test("a key is brought to each jump host once, before the workers that are reached through it", () => {
  const worker = (host: string, sshJump?: string): WorkerAddress => {
    return { host, connection: "ssh", root: "/opt", ...(sshJump !== undefined && { sshJump }) };
  };
  const workers = [worker("w1", "gate"), worker("w2"), worker("w3", "ops@gate:22"), worker("w4", "me@gate:2222")];
  const holders = keyHolders(workers, { user: "ops" } as SshSettings);
  assert.deepEqual(
    holders.map(({ name, isJump }) => [name, isJump]),
    [["ops@gate:22", true], ["me@gate:2222", true], ...workers.map(({ host }) => [host, false])],
  );
  assert.deepEqual(holders[1]?.address, { host: "gate", connection: "ssh", root: "/nowhere", sshUser: "me", sshPort: 2222 });
  assert.equal(holders[2]?.address, workers[0]);
});
