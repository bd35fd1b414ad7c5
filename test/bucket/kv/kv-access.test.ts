import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { HOOK_EVENTS } from "../../../lib/bucket/base/model.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import {
  allocationNamespace,
  allocationsRange,
  BUCKET_FUNCTIONS,
  fingerprintsOf,
  fullNamespace,
  isOfJob,
  isPrivateKey,
  isSealed,
  isSecretNamespace,
  jobOfAllocation,
  LONGEST_TTL,
  loadKvKey,
  mayWrite,
  readableNamespaces,
  readKvKey,
  sealedValues,
  tryUnseal,
} from "../../../lib/bucket/kv/kv-access.ts";
import { seal, sealingKey } from "../../../lib/codec/crypto/seal.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const READER = { job: "web", worker: "10.0.0.1", upstream: ["db"] };
const ROUTES = ["/kv", "/kv/secret"] as const;

test("HR-196 HR-198 HR-200 T-94 a job reads its own namespaces, the bucket's and those of its upstream jobs", () => {
  assert.deepEqual([...readableNamespaces(READER)].sort(), [
    ...["ops/bucket", "ops/job/db", "ops/job/web", "ops/job/web/worker/10.0.0.1", "ops/worker"],
    ...["ops/worker/10.0.0.1", "ops/worker/10.0.0.1/tags", "secrets/job/db", "secrets/job/web"],
    ...["vars/bucket", "vars/bucket/job/web", "vars/job/db", "vars/job/web"],
  ]);
});

test("HR-187 HR-189 HR-192 HR-201 HR-202 what a script may write, on every event, is three namespaces of its job", () => {
  const namespaces = [...readableNamespaces(READER), "vars/job/webs", "vars/job/web/", "vars/job/web/x", "tags", ""];
  for (const event of HOOK_EVENTS)
    for (const route of ROUTES)
      for (const namespace of namespaces) {
        const isOwn = namespace === (route === "/kv" ? "vars/job/web" : "secrets/job/web");
        assert.equal(mayWrite("web", event, { route, namespace, key: "k" }), isOwn, `${event} ${route} ${namespace}`);
      }
});

for (const event of HOOK_EVENTS)
  test(`HR-181 HR-183 HR-185 rollout_order may ${["pre_deploy", "cli"].includes(event) ? "" : "not "}be written on ${event}`, () => {
    const isOpen = event === "pre_deploy" || event === "cli";
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/web", key: "rollout_order" }), isOpen);
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/web", key: "version" }), false);
    assert.equal(mayWrite("web", event, { route: "/kv/secret", namespace: "ops/job/web", key: "rollout_order" }), false);
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/db", key: "rollout_order" }), false);
  });

for (const [name, expected] of [
  ["vars/job/web", true],
  ["secrets/job/web", true],
  ["ops/job/web", true],
  ["ops/job/web/worker/10.0.0.1", true],
  ["vars/job/webs", false],
  ["vars/bucket/job/web", false],
  ["ops/bucket", false],
  ["ops/worker/web", false],
] as const)
  test(`${name} is ${expected ? "" : "not "}of job web`, () => assert.equal(isOfJob(name, "web"), expected));

test("HR-204 what is sealed are secrets and the private keys of certificates, and nothing else", () => {
  const sealed = [
    ["secrets/job/web", "k"],
    ["secrets/notify", "k"],
    ["ops/job/web/worker/a", "certs/x.key"],
  ] as const;
  const clear = [
    ["ops/job/web/worker/a", "certs/x.crt"],
    ["ops/job/web", "x.key"],
    ["vars/job/web", "certs/x.key"],
    ["ops/worker", "certs/ca.key"],
    ["secret/job/web", "k"],
    ["xsecrets/a", "k"],
    ["ops/job/web", "certs/x.keys"],
    ["ops/job/web", "xcerts/x.key"],
  ] as const;
  assert.deepEqual(
    [sealed.filter(([name, key]) => !isSealed(name, key)), clear.filter(([name, key]) => isSealed(name, key))],
    [[], []],
  );
  assert.deepEqual([isPrivateKey("secrets/job/web", "certs/x.key"), isSecretNamespace("ops/job/web")], [false, false]);
});

test("the namespaces of a job's allocations are those between two names, and tell their job", () => {
  const name = allocationNamespace("web", "10.0.0.1");
  assert.equal(name, "ops/job/web/worker/10.0.0.1");
  const [from, to] = allocationsRange("web");
  const inside = [name, allocationNamespace("web", "a"), allocationNamespace("web", "~")];
  const outside = ["ops/job/web", "ops/job/web/workers", "ops/job/webs/worker/a", "ops/job/we/worker/a", "ops/job/web/worker0"];
  assert.deepEqual(
    [inside, outside].map((names) => names.filter((one) => one >= from && one < to)),
    [inside, []],
  );
  const jobs = [name, "ops/job/a/worker/", "ops/job/a/b/worker/c", "ops/job/web", "xops/job/web/worker/a", "vars/job/a/worker/b"];
  assert.deepEqual(jobs.map(jobOfAllocation), ["web", "a", undefined, undefined, undefined, undefined]);
  const short = ["tags", "ops", "ops/bucket", "vars/job/web", ""].map((one) => fullNamespace(one, "w"));
  assert.deepEqual(short, ["ops/worker/w/tags", "ops/bucket", "ops/bucket", "vars/job/web", ""]);
  assert.deepEqual(BUCKET_FUNCTIONS, ["get", "getOptional", "getSecret", "keys", "scrapeConfigs", "ruleFiles"]);
  assert.equal(LONGEST_TTL, 3_162_240_000, "100 years of 366 days");
});

test("a bucket without kv.key is not initialised, and shows no fingerprint of a secret", async (t) => {
  const { layout } = await makeBucket(t);
  const key = sealingKey(await loadKvKey(layout));
  const shown = async () => (await fingerprintsOf(layout))("secrets/job/web", "k", seal(key, "secrets/job/web", "k", "text"));
  assert.match(await shown(), /^[\da-f]{12}$/);
  rmSync(layout.kvKey);
  const message = "Cannot read secrets/kv.key: there is none; run `ops init`";
  await assert.rejects(loadKvKey(layout), { code: "bucket_not_initialized", message });
  assert.equal(await shown(), "");
});

test("while kv.key is changed the key before opens too, and a key of another length is none", async (t) => {
  const { db, layout } = await makeBucket(t);
  const [first] = [await loadKvKey(layout)] as [Buffer];
  const old = Buffer.alloc(32, 1);
  const sealed = seal(old, "secrets/job/web", "k", "text");
  assert.equal(tryUnseal(first, "secrets/job/web", "k", sealed), undefined);
  writeFileSync(layout.kvKeyOld, old);
  const both = await loadKvKey(layout);
  assert.deepEqual(both, [first, old]);
  assert.equal(tryUnseal(both, "secrets/job/web", "k", sealed), "text");
  assert.equal(tryUnseal(both, "secrets/job/web", "other", sealed), undefined);
  for (const bytes of [31, 33, 0]) {
    writeFileSync(layout.kvKeyOld, Buffer.alloc(bytes));
    const message = `Cannot read secrets/${path.basename(layout.kvKeyOld)}: it has ${bytes} bytes instead of 32`;
    await assert.rejects(loadKvKey(layout), { code: "failed", message });
  }
  rmSync(layout.kvKeyOld);
  assert.equal(await readKvKey(layout.kvKeyOld), undefined);
  const kv = new KvStore(db, first);
  const places = [
    ["secrets/job/web", "a"],
    ["secrets/job/web", "gone"],
    ["ops/job/web/worker/a", "certs/x.key"],
    ["vars/job/web", "b"],
  ] as const;
  for (const [namespace, key] of places) kv.put(namespace, key, "x");
  kv.flush();
  kv.delete("secrets/job/web", "gone");
  kv.flush();
  assert.deepEqual(sealedValues(db, first), { sealed: 2, unreadable: [] });
  const unreadable = ["ops/job/web/worker/a certs/x.key", "secrets/job/web a"];
  assert.deepEqual(sealedValues(db, old), { sealed: 2, unreadable });
});
