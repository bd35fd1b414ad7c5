import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { statSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { beginRotation, issueFromNext, readRotation } from "../../../lib/bucket/base/authority-change.ts";
import { loadAuthority, makePair, readPair } from "../../../lib/bucket/base/certificates.ts";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange, promote, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import { authoritiesOf, authorityUse, begunKeyChanges, keyChanges, whatWaits } from "../../../lib/bucket/keys/key-changes.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const told = async ({ layout, db }: Awaited<ReturnType<typeof makeBucket>>) => keyChanges(db, await begunKeyChanges(layout));

test("a change of kv.key and one of the ssh key are told from their files, with what is left and how it goes on", async (t) => {
  const bucket = await makeBucket(t);
  const { layout } = bucket;
  assert.deepEqual(await told(bucket), []);
  const at = new Date("2026-01-02T03:04:05.000Z");
  const write = (file: string, text = "x") => {
    writeFileSync(file, text);
    utimesSync(file, at, at);
  };
  const [kv, ssh] = [
    { kind: "kv_rekey", since: at.toISOString(), next: "ops kv rekey" },
    { kind: "ssh_key_rotate", since: at.toISOString(), next: "ops ssh-key rotate" },
  ];
  const of = (name: string) => path.join(layout.secrets, name);
  write(layout.kvKeyOld);
  write(of(".ssh_key.old"));
  const may = "may know only the ssh key before, which is offered too";
  const sealed = { ...kv, left: "not everything is sealed anew: the kv.key before opens too" };
  assert.deepEqual(await told(bucket), [sealed, { ...ssh, left: `a machine ${may}` }]);
  const machines = Array.from({ length: 11 }, (_, index) => `w${index}`);
  writeFileSync(of(".ssh_key.left"), JSON.stringify(machines));
  assert.equal((await told(bucket))[1]?.left, `${machines.slice(0, 10).join(", ")} and 1 more ${may}`);
  write(layout.kvKeyNew);
  write(of(".ssh_key.next"));
  assert.deepEqual(await told(bucket), [
    { ...kv, left: "the new kv.key is not in use yet" },
    { ...ssh, left: "the new ssh key is not in use yet: not every machine was seen to let it in" },
  ]);
  assert.equal(statSync(layout.kvKey).isFile(), true);
});

async function deployed(t: TestContext) {
  const bucket = await makeBucket(t, { workers: ["a", "b"], jobs: { web: { selectors: ["worker"], certs: { x: {} } } } });
  await build(bucket.context(), {});
  return bucket;
}

test("a rotation of the CA tells its step, what it waits for, and of which CA a certificate is", async (t) => {
  const bucket = await deployed(t);
  const { layout, db } = bucket;
  assert.equal(await authoritiesOf(layout), undefined);
  const certificateOf = (worker: string) => bucket.kv().get(`ops/job/web/worker/${worker}`, "certs/x.crt") ?? assert.fail();
  const [before, ca] = [certificateOf("a"), (await loadAuthority(layout)).pem];
  const rotation = await beginRotation(layout, await makePair("next"));
  const change = { kind: "ca_rotate", since: rotation.since };
  const step = "the next CA does not sign yet";
  const unbuilt = { ...change, left: `${step}: no build knows the present ca.crt`, next: "ops deploy --build" };
  assert.deepEqual(await told(bucket), [unbuilt]);
  await build(bucket.context(), {});
  assert.deepEqual(await told(bucket), [{ ...change, left: step, next: "ops ca rotate" }]);
  const authorityOf = (await authoritiesOf(layout)) ?? assert.fail();
  assert.deepEqual([before, ca, rotation.next?.certificate ?? ""].map(authorityOf), ["old", "old", "new"]);
  await issueFromNext(layout, (await readRotation(layout)) ?? assert.fail());
  await build(bucket.context(), {});
  const trusted = "the CA before is trusted too";
  assert.deepEqual(
    (await told(bucket)).map(({ left, next }) => [left, next]),
    [[trusted, "ops ca rotate"]],
  );
  const now = (await authoritiesOf(layout)) ?? assert.fail();
  assert.deepEqual([before, ca, certificateOf("a"), (await loadAuthority(layout)).pem].map(now), ["old", "old", "new", "new"]);
  const text = (await readPair(layout)).certificate ?? "";
  assert.deepEqual(authorityUse(db, text), { isBuilt: true, running: 0, waiting: [] });
  for (const { id, worker } of catalogAllocations(db)) {
    beginChange(db, "web", [id]);
    const sum = hash("sha256", worker === "a" ? text : ca);
    recordSynced(db, "web", [{ id, hash: "h", files: { "certs/ca.crt": `644:${sum}` }, updateSeq: 1 }]);
    promote(db, { job: "web", id }, "1.0.0");
  }
  assert.deepEqual(authorityUse(db, text), { isBuilt: true, running: 2, waiting: ["web@b"] });
  const waits = "1 of 2 running allocations are not deployed with the present ca.crt: web@b";
  assert.deepEqual(
    (await told(bucket)).map(({ left, next }) => [left, next]),
    [[`${trusted}: ${waits}`, "ops deploy --build"]],
  );
});

test("the next step of a rotation waits for a build, then for the allocations, of which ten are named", () => {
  const names = Array.from({ length: 11 }, (_, index) => `web@w${index}`);
  const waits = (waiting: string[], isBuilt = true) => whatWaits({ isBuilt, waiting, running: 12 });
  assert.equal(waits(names, false), "no build knows the present ca.crt");
  assert.equal(waits([]), undefined);
  const deploy = "not deployed with the present ca.crt";
  assert.equal(waits(["web@w0"]), `1 of 12 running allocations are ${deploy}: web@w0`);
  assert.equal(waits(names.slice(0, 10)), `10 of 12 running allocations are ${deploy}: ${names.slice(0, 10).join(", ")}`);
  assert.match(waits(names) ?? "", /, web@w9 and 1 more$/);
});
