import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { KeyHolding, keyHolders } from "../../../lib/transport/trust/authorized-keys.ts";
import { playedSsh } from "../../helpers/mux.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

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

const KEYS = { oldKey: "ssh-ed25519 AAAAold", newKey: "ssh-ed25519 AAAAnew" };

/** A worker whose home is a folder here, and where ssh says what `says` answers for each key. */
function setUp(t: TestContext, says: (key: string) => string | undefined = () => undefined) {
  const home = temporaryFolder(t);
  const [keyFile, newFile, knownHostsFile] = ["old.key", "new.key", "known_hosts"].map((name) => {
    writeFileSync(path.join(home, name), "");
    return path.join(home, name);
  }) as [string, string, string];
  mkdirSync(path.join(home, ".ssh"));
  const file = path.join(home, ".ssh/authorized_keys");
  writeFileSync(file, `restrict ${KEYS.oldKey} me\n`);
  const stop = new AbortController();
  const { noted, launcher } = playedSsh(t, {
    env: { HOME: home },
    says: (_, folder) => says(path.basename(readlinkSync(path.join(folder, "key")))),
  });
  const settings = { user: "agent", port: 22, keyFile, knownHostsFile, options: {}, concurrency: 1 } as unknown as SshSettings;
  const worker: WorkerAddress = { host: "w1", connection: "ssh", root: "/opt" };
  const tools = { settings, newFile, keys: KEYS, launcher, signal: stop.signal };
  const holding = new KeyHolding({ name: "w1", isJump: false, address: worker }, tools);
  t.after(() => holding.close());
  return { holding, noted, stop, authorized: () => readFileSync(file, "utf8") };
}

test("a new key is put beside the old one and tried out, then the old one goes, and no connection stays", async (t) => {
  const { holding, noted, authorized } = setUp(t);
  await holding.install();
  assert.equal(authorized(), `restrict ${KEYS.oldKey} me\nrestrict ${KEYS.newKey}\n`);
  assert.deepEqual(noted, ["ssh w1", "end w1", "ssh w1"]);
  await holding.remove();
  assert.equal(authorized(), `restrict ${KEYS.newKey}\n`);
  await holding.close();
  assert.deepEqual(noted, ["ssh w1", "end w1", "ssh w1", "end w1"]);
});

const DENIED = "Permission denied (publickey).";

for (const [what, says, wrong, tries] of [
  ["no key but the new one", { "old.key": DENIED }, undefined, 2],
  ["no key", { "old.key": DENIED, "new.key": DENIED }, ["unreachable", /the key secrets\/old\.key is not accepted there/], 2],
  [
    "the old key alone",
    { "new.key": DENIED },
    ["failed", /^the new key is in ~\/\.ssh\/authorized_keys of w1, and does not let in: Cannot sign in .*ssh-ed25519 AAAAnew$/],
    2,
  ],
  ["nobody now", { "old.key": "ssh: Could not resolve hostname w1: gone" }, ["unreachable", /the name has no address/], 1],
] as [string, Record<string, string>, [string, RegExp] | undefined, number][])
  test(`what becomes of a change of keys where a machine lets in ${what}`, async (t) => {
    const { holding, noted } = setUp(t, (key) => says[key]);
    if (wrong) await assert.rejects(holding.install(), { code: wrong[0], message: wrong[1] });
    else await holding.install();
    assert.equal(noted.filter((one) => one === "ssh w1").length, tries);
  });

test("a cancel at any time is a cancel, and a mistake of ours is none of the machine's", async (t) => {
  for (const when of ["old.key", "new.key"]) {
    const { holding, stop } = setUp(t, (key) => {
      if (key !== when) return undefined;
      stop.abort();
      return DENIED;
    });
    await assert.rejects(holding.install(), { code: "cancelled" });
  }
  const { holding } = setUp(t, (key) => {
    if (key === "old.key") throw new TypeError("a mistake");
    return undefined;
  });
  await assert.rejects(holding.install(), { name: "TypeError" });
});
