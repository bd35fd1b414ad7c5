import assert from "node:assert/strict";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { CatalogWorker } from "../../../lib/bucket/base/model.ts";
import { selectWorkers } from "../../../lib/bucket/catalog/choices.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { trust } from "../../../lib/operation/base/workers.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { runCommand } from "../../../lib/operation/control/run-command.ts";
import { facts, sysstat, uptime } from "../../../lib/operation/tend/readings.ts";
import type { TrustResult } from "../../../lib/transport/trust/trust.ts";
import { makeKey, type PrivateSshd, publicPart } from "../../../scripts/private-sshd.ts";
import { fingerprintBy, startSshd } from "../../helpers/sshd.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

/** A built bucket whose workers these are, on the port of that sshd. */
async function bucketWith(t: TestContext, sshd: PrivateSshd, workers: object[], opsConf = "") {
  const spec = { workers: workers as Record<string, unknown>[], files: { "ops.conf": `ssh_port = ${sshd.port}\n${opsConf}` } };
  const bucket = await makeBucket(t, spec);
  await build(bucket.context("build"), {});
  const give = (params: Record<string, unknown> = {}) => {
    bucket.activity.length = 0;
    return trust(bucket.context("worker_trust"), params) as Promise<TrustResult>;
  };
  const known = () => (existsSync(bucket.layout.knownHosts) ? readFileSync(bucket.layout.knownHosts, "utf8") : "");
  return { ...bucket, give, known };
}

const outcomes = ({ workers }: TrustResult) => workers.map(({ worker, outcome }) => `${worker} ${outcome}`);

test("CP-252 T-87 trust asks the ssh workers of the catalog, records them and changes no file of the source", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const { give, known, activity, layout } = await bucketWith(t, sshd, [
    { host: "127.0.0.2", labels: ["db"] },
    { host: "127.0.0.1", connection: "local" },
    { host: "127.0.0.3" },
  ]);
  const source = readFileSync(layout.workersJson, "utf8");
  const { workers } = await give();
  assert.deepEqual(outcomes({ workers, jump_hosts: [] }), ["127.0.0.2 trusted", "127.0.0.3 trusted"]);
  const [key = ""] = sshd.hostKeys;
  const line = (host: string) => `[${host}]:${sshd.port} ${publicPart(key)}\n`;
  assert.equal(known(), line("127.0.0.2") + line("127.0.0.3"));
  const said = activity.join("");
  for (const host of ["127.0.0.2", "127.0.0.3"])
    assert.ok(said.includes(`worker ${host}: trusted, ssh-ed25519 ${fingerprintBy(key)}\n`), said);
  assert.ok(said.endsWith("2 of 2 workers are trusted\n"));
  assert.equal(readFileSync(layout.workersJson, "utf8"), source);
  assert.deepEqual(outcomes(await give({ labels: ["Worker"], concurrency: 1 })), [
    "127.0.0.2 unchanged",
    "127.0.0.1 not_needed",
    "127.0.0.3 unchanged",
  ]);
  assert.deepEqual(outcomes(await give({ workers: ["127.0.0.3"] })), ["127.0.0.3 unchanged"]);
});

test("CP-256 a run fails after all were asked, tells both fingerprints, and force replaces the key", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const bucket = await bucketWith(t, sshd, [{ host: "127.0.0.2" }, { host: "127.0.0.3", ssh_port: 1 }, { host: "127.0.0.4" }]);
  const stranger = makeKey(sshd.folder, "stranger", "-t", "ed25519");
  writeFileSync(bucket.layout.knownHosts, `[127.0.0.2]:${sshd.port} ${publicPart(stranger)}\n`);
  const [shown = ""] = sshd.hostKeys;
  const failure = await bucket.give().then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(failure instanceof Failure);
  assert.equal(failure.message, "2 of 3 workers are not trusted: 127.0.0.2 (changed), 127.0.0.3 (unreachable)");
  const result = failure.details as TrustResult;
  assert.deepEqual(outcomes(result), ["127.0.0.2 changed", "127.0.0.3 unreachable", "127.0.0.4 trusted"]);
  const said = bucket.activity.join("");
  const both = `known is ssh-ed25519 ${fingerprintBy(stranger)}, it shows ssh-ed25519 ${fingerprintBy(shown)}`;
  assert.ok(said.includes(`error: worker 127.0.0.2: its host key is not the known one: ${both}; `), said);
  assert.match(said, /^error: worker 127\.0\.0\.3: not trusted: connection refused$/m);
  assert.deepEqual(outcomes(await bucket.give({ workers: ["127.0.0.2"], force: true })), ["127.0.0.2 replaced"]);
  assert.ok(bucket.known().includes(`[127.0.0.2]:${sshd.port} ${publicPart(shown)}\n`));
});

test("the jump host of ops.conf is trusted first, signed in to with the bucket's key as the user of ops.conf", async (t) => {
  const hop = await startSshd(t, ["ed25519"]);
  const inner = await startSshd(t, ["rsa"]);
  const conf = `ssh_user = "${hop.user}"\nssh_jump = "127.0.0.1:${hop.port}"\nssh_key = "jump.pem"\n`;
  const workers = [{ host: "127.0.0.2", ssh_user: "nobody" }, { host: "127.0.0.3" }];
  const bucket = await bucketWith(t, inner, workers, conf);
  copyFileSync(hop.clientKey, path.join(bucket.layout.secrets, "jump.pem"));
  const result = await bucket.give();
  assert.deepEqual(
    result.jump_hosts.map(({ host, outcome }) => `${host} ${outcome}`),
    [`[127.0.0.1]:${hop.port} trusted`],
  );
  assert.deepEqual(outcomes(result), ["127.0.0.2 trusted", "127.0.0.3 trusted"]);
  assert.match(bucket.activity[0] ?? "", /^jump host \[127\.0\.0\.1\]:\d+: trusted, /);
});

const worker = (host: string, more: Partial<CatalogWorker> = {}): CatalogWorker => ({
  host,
  id: host,
  hostname: null,
  connection: "ssh",
  root: "/opt/worker",
  labels: ["worker"],
  position: 0,
  removed: false,
  syncedSeq: 0,
  ...more,
});
const CATALOG = [
  worker("db1.example", { labels: ["db", "worker"] }),
  worker("10.0.0.1", { labels: ["web", "worker"] }),
  worker("10.0.0.2", { connection: "local" }),
  worker("10.0.0.3", { removed: true, labels: ["old", "worker"] }),
];

for (const [what, wanted, hosts] of [
  ["nothing said", {}, ["db1.example", "10.0.0.1", "10.0.0.2"]],
  ["workers, in any order and in capitals", { workers: ["10.0.0.2", " DB1.example"] }, ["db1.example", "10.0.0.2"]],
  ["a worker that is on its way out", { workers: ["10.0.0.3"] }, ["10.0.0.3"]],
  ["labels", { labels: ["DB", "web"] }, ["db1.example", "10.0.0.1"]],
  ["the label of all", { labels: ["worker"] }, ["db1.example", "10.0.0.1", "10.0.0.2"]],
] as const)
  test(`with ${what}, the workers are ${hosts.join(", ")}`, () => {
    assert.deepEqual(
      selectWorkers(CATALOG, wanted).map(({ host }) => host),
      hosts,
    );
  });

for (const [what, wanted, message] of [
  ["an unknown worker", { workers: ["10.0.0.1", "db2.example"] }, /there is no worker "db2\.example"; did you mean "db1/],
  ["an unknown label", { labels: ["webb"] }, /there is no label "webb"; did you mean "web"\?/],
  ["a label that only removed workers carry", { labels: ["old"] }, /there is no label "old"/],
  ["both filters", { workers: ["10.0.0.1"], labels: ["web"] }, /give workers or labels, not both/],
] as const)
  test(`${what} is an error`, () => assert.throws(() => selectWorkers(CATALOG, wanted), message));

for (const [what, operation, kind] of [
  ["trust", trust, "worker_trust"],
  ["facts", facts, "worker_facts"],
  ["uptime", uptime, "worker_uptime"],
  ["sysstat", sysstat, "worker_sysstat"],
  ["run_command", runCommand, "run_command"],
] as const)
  test(`${what} without workers says what is missing`, async (t) => {
    const bucket = await makeBucket(t, { workers: ["10.0.0.1"] });
    const give = (params: object) =>
      operation(bucket.context(kind), { ...params, ...(kind === "run_command" && { command: "true" }) });
    const unbuilt = { code: "failed", message: /^the bucket has not been built yet: build it/ };
    await assert.rejects(async () => give({}), unbuilt);
    await assert.rejects(async () => give({ workers: ["10.0.0.1"] }), unbuilt);
    makeWorkspace(bucket.dir, { workers: [] });
    await build(bucket.context("build"), {});
    const none = { code: "failed", message: /^the catalog has no workers: list them in workspace\/workers\.json/ };
    await assert.rejects(async () => give({}), none);
  });

test("where no worker is reached over ssh there is nothing to trust", async (t) => {
  const bucket = await makeBucket(t, { workers: [{ host: "10.0.0.1", connection: "local" }] });
  await build(bucket.context("build"), {});
  const result = (await trust(bucket.context("worker_trust"), {})) as TrustResult;
  assert.deepEqual(result.workers, []);
  assert.equal(bucket.activity.at(-1), "no worker is reached over ssh: there is nothing to trust\n");
});

for (const params of [{ workers: [] }, { concurrency: 0 }, { force: "yes" }, { generate_workers: true }])
  test(`trust with ${JSON.stringify(params)} is refused`, async (t) => {
    const bucket = await makeBucket(t, {});
    await assert.rejects(trust(bucket.context("worker_trust"), params), { code: "invalid_request" });
  });
