import assert from "node:assert/strict";
import { createHmac, createPrivateKey, generateKeyPairSync, hash, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogView, type ViewQuery } from "../../../lib/bucket/catalog/views.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { sealingKey } from "../../../lib/codec/crypto/seal.ts";
import { selfSigned } from "../../../lib/codec/crypto/x509.ts";
import { type BuildResult, build } from "../../../lib/operation/build/build.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { openssl, verify } from "../../helpers/openssl.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "../../helpers/workspace.ts";

const DAY_MS = 86_400_000;
const WORKERS = ["10.0.0.1", "fd00::2", "db3.example"];

type Certs = Record<string, Record<string, unknown>>;

/** Builds the bucket with one job `web` that runs everywhere. */
async function run(
  bucket: TestBucket,
  certs: Certs,
  options: { workers?: readonly string[]; manifest?: object; conf?: string; files?: Record<string, string> } = {},
): Promise<BuildResult> {
  const { workers = WORKERS, manifest = {}, conf = "", files = {} } = options;
  makeWorkspace(bucket.dir, {
    workers,
    jobs: { web: { version: "1.0.0", selectors: ["worker"], certs, ...manifest } },
    files: { "ops.conf": conf, ...files },
  });
  return (await build(bucket.context(), {})) as BuildResult;
}

/** A file of `certs/` as the KV store has it. */
function stored(bucket: TestBucket, worker: string, file: string): string | undefined {
  return bucket.kv().get(`ops/job/web/worker/${worker}`, `certs/${file}`);
}

function certificate(bucket: TestBucket, worker: string, name = "server"): string {
  return stored(bucket, worker, `${name}.crt`) ?? assert.fail(`no certificate ${name} for ${worker}`);
}

function serials(bucket: TestBucket, name = "server", workers = WORKERS): string[] {
  return workers.map((worker) => new X509Certificate(certificate(bucket, worker, name)).serialNumber);
}

const caOf = ({ layout }: TestBucket) => readFileSync(layout.caCertificate, "utf8");
const altNamesOf = (pem: string) => new X509Certificate(pem).subjectAltName;

/** From now on this process believes that it is `days` later. */
function travel(t: TestContext, days: number): void {
  t.mock.timers.reset();
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + days * DAY_MS });
}

/** Puts another CA in the place of the bucket's, which ends in so many days. */
async function replaceAuthority({ layout }: TestBucket, days: number): Promise<void> {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-384" });
  const validity = { notBefore: new Date(Date.now() - 2 * DAY_MS), notAfter: new Date(Date.now() + days * DAY_MS) };
  writeFileSync(layout.caCertificate, await selfSigned("another", keys, validity));
  writeFileSync(layout.caKey, keys.privateKey.export({ type: "pkcs8", format: "pem" }));
}

test("every allocation gets a certificate of its own that the CA vouches for, disabled ones too", async (t) => {
  const bucket = await makeBucket(t);
  const files = { "workspace/disabled.json": '{"workers": ["fd00::2"]}' };
  const subject = { common_name: "Web shop", alt_names: ["*.shop.example", "192.0.2.7"] };
  const result = await run(bucket, { server: { subject } }, { files });
  assert.deepEqual(result.warnings, []);
  assert.ok(bucket.activity.includes("issuing 3 certificates\n"), bucket.activity.join(""));
  const ca = caOf(bucket);
  for (const [worker, shown, option] of [
    ["10.0.0.1", "IP Address:10.0.0.1", "-verify_ip"],
    ["fd00::2", "IP Address:FD00:0:0:0:0:0:0:2", "-verify_ip"],
    ["db3.example", "DNS:db3.example", "-verify_hostname"],
  ] as const) {
    const pem = certificate(bucket, worker);
    verify(t, ca, pem, option, worker, "-purpose", "sslserver");
    verify(t, ca, pem, "-verify_hostname", "eu.shop.example", "-purpose", "sslclient");
    assert.equal(altNamesOf(pem), `IP Address:127.0.0.1, DNS:localhost, ${shown}, DNS:*.shop.example, IP Address:192.0.2.7`);
    const parsed = new X509Certificate(pem);
    assert.equal(parsed.subject, "CN=Web shop");
    assert.ok(parsed.checkPrivateKey(createPrivateKey(stored(bucket, worker, "server.key") ?? "")));
    assert.equal(Math.round((parsed.validToDate.getTime() - Date.now()) / DAY_MS), 60);
    assert.equal(Math.round((Date.now() - parsed.validFromDate.getTime()) / 60_000), 5);
  }
  assert.equal(new Set(serials(bucket)).size, 3);
});

for (const [name, san, option] of [
  ["pay.shop.example", "DNS:pay.shop.example", "-verify_hostname"],
  ["192.0.2.9", "IP Address:192.0.2.9", "-verify_ip"],
  ["fd00::9", "IP Address:FD00:0:0:0:0:0:0:9", "-verify_ip"],
  ["", "DNS:web", "-verify_hostname"],
] as const)
  test(`the common name ${name || "of the job"} is among the names that a certificate is for`, async (t) => {
    const bucket = await makeBucket(t);
    await run(bucket, { server: { subject: { common_name: name } } }, { workers: ["10.0.0.1"] });
    const pem = certificate(bucket, "10.0.0.1");
    verify(t, caOf(bucket), pem, option, name || "web", "-purpose", "sslserver");
    assert.equal(altNamesOf(pem), `IP Address:127.0.0.1, DNS:localhost, IP Address:10.0.0.1, ${san}`);
  });

test("a certificate whose row an earlier version has written, or from before its common name was among its names, stays", async (t) => {
  const bucket = await makeBucket(t);
  const request = { name: "server", pkcs8: false, one: false, key: "ec", commonName: "web", altNames: [] };
  await run(bucket, { server: {} }, { workers: ["10.0.0.1"] });
  const [serial] = serials(bucket, "server", ["10.0.0.1"]);
  const requestOf = (job: string) =>
    bucket.db.get<{ request: string }>("SELECT request FROM job_certs WHERE job = ?", job)?.request ?? assert.fail();
  const inputs = JSON.stringify([requestOf(""), request, []]);
  assert.equal(requestOf("web"), `sha256:${hash("sha256", inputs)}`);
  const asBefore = createHmac("sha256", sealingKey(await loadKvKey(bucket.layout)))
    .update(inputs)
    .digest("hex");
  bucket.db.run("UPDATE job_certs SET request = ? WHERE job = 'web'", asBefore);
  await run(bucket, { server: {} }, { workers: ["10.0.0.1"] });
  assert.deepEqual(serials(bucket, "server", ["10.0.0.1"]), [serial]);
  assert.equal(requestOf("web"), `sha256:${hash("sha256", inputs)}`);
});

test("keys are written in the form that the manifest asks for, and openssl reads each", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { a: {}, b: { pkcs8: true }, c: { key: "rsa" }, d: { key: "rsa", pkcs8: true } }, { workers: ["10.0.0.1"] });
  for (const [name, header, algorithm] of [
    ["a", "EC PRIVATE KEY", "prime256v1"],
    ["b", "PRIVATE KEY", "prime256v1"],
    ["c", "RSA PRIVATE KEY", "Private-Key: (3072 bit"],
    ["d", "PRIVATE KEY", "Private-Key: (3072 bit"],
  ] as const) {
    const key = stored(bucket, "10.0.0.1", `${name}.key`) ?? "";
    assert.ok(key.startsWith(`-----BEGIN ${header}-----\n`) && key.endsWith(`-----END ${header}-----\n`), name);
    assert.ok(openssl(["pkey", "-noout", "-text"], key).includes(algorithm), name);
    const pem = certificate(bucket, "10.0.0.1", name);
    assert.equal(openssl(["x509", "-noout", "-pubkey"], pem), openssl(["pkey", "-pubout"], key));
    verify(t, caOf(bucket), pem);
  }
});

test("T-57 private keys are sealed in the database; certificates and the CA's are plain, its key is not there", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {} }, { workers: ["10.0.0.1"] });
  const values = new Map(
    bucket.db.all("SELECT key, value FROM key_value WHERE key LIKE 'certs/%'").map((row) => [String(row.key), String(row.value)]),
  );
  assert.deepEqual([...values.keys()].sort(), ["certs/ca.crt", "certs/server.crt", "certs/server.key"]);
  assert.match(values.get("certs/server.key") ?? "", /^enc:v2:/);
  assert.match(values.get("certs/server.crt") ?? "", /^-----BEGIN CERTIFICATE/);
  assert.equal(values.get("certs/ca.crt"), caOf(bucket));
  const file = readFileSync(bucket.layout.database, "latin1") + readFileSync(`${bucket.layout.database}-wal`, "latin1");
  assert.equal(file.includes("PRIVATE KEY"), false);
});

test("a build that has nothing to issue leaves certificates, keys and their versions as they are", async (t) => {
  const bucket = await makeBucket(t);
  const certs = { server: {}, client: { one: true } };
  await run(bucket, certs);
  const rows = () => bucket.db.all("SELECT * FROM key_value WHERE key LIKE 'certs/%' ORDER BY namespace, key, version");
  const before = rows();
  const said = bucket.activity.length;
  travel(t, 44);
  await run(bucket, certs, { manifest: { version: "1.0.1" }, conf: "certs_ttl = 90\n" });
  assert.deepEqual(rows(), before);
  assert.ok(!bucket.activity.slice(said).join("").includes("issuing"));
});

test("whoever comes or goes, the certificates of the others stay; one for all is made anew", async (t) => {
  const bucket = await makeBucket(t);
  const certs = { server: {}, shared: { one: true } };
  await run(bucket, certs);
  const [own, shared] = [serials(bucket), serials(bucket, "shared")];
  assert.equal(new Set(shared).size, 1);
  assert.equal(new Set(WORKERS.map((worker) => stored(bucket, worker, "shared.key"))).size, 1);

  await run(bucket, certs, { workers: WORKERS.toReversed() });
  assert.deepEqual([serials(bucket), serials(bucket, "shared")], [own, shared], "another order");

  const more = [...WORKERS, "10.0.0.4"];
  await run(bucket, certs, { workers: more });
  assert.deepEqual(serials(bucket), own);
  const larger = serials(bucket, "shared", more);
  assert.deepEqual([new Set(larger).size, larger.includes(shared[0] ?? "")], [1, false]);
  assert.match(altNamesOf(certificate(bucket, "10.0.0.4", "shared")) ?? "", /10\.0\.0\.1.*10\.0\.0\.4/);

  await run(bucket, certs, { workers: WORKERS.slice(1) });
  assert.equal(stored(bucket, "10.0.0.1", "server.key"), undefined);
  assert.deepEqual(serials(bucket, "server", WORKERS.slice(1)), own.slice(1));
  assert.doesNotMatch(altNamesOf(certificate(bucket, "fd00::2", "shared")) ?? "", /10\.0\.0\.1/);

  await run(bucket, certs);
  assert.deepEqual(serials(bucket).slice(1), own.slice(1));
  assert.notEqual(serials(bucket)[0], own[0], "who comes back gets a new one");
});

test("what a certificate is made from decides whether it is made anew", async (t) => {
  const first = { pkcs8: false, one: false, key: "ec", subject: { common_name: "a", alt_names: ["x.example"] } };
  for (const [change, options, isNew] of [
    [{}, {}, false],
    [{}, { manifest: { version: "2.0.0" } }, false],
    [{}, { conf: "certs_ttl = 5\n" }, false],
    [{}, { files: { "workspace/jobs/web/new-file": "x" } }, false],
    [{ pkcs8: true }, {}, true],
    [{ one: true }, {}, true],
    [{ subject: { common_name: "b", alt_names: ["x.example"] } }, {}, true],
    [{ subject: { common_name: "a", alt_names: ["y.example"] } }, {}, true],
    [{ subject: { common_name: "a" } }, {}, true],
  ] as const) {
    const bucket = await makeBucket(t);
    await run(bucket, { server: first, other: {} });
    const [before, other] = [serials(bucket), serials(bucket, "other")];
    await run(bucket, { server: { ...first, ...change }, other: {} }, options);
    assert.deepEqual(serials(bucket, "other"), other);
    const kept = serials(bucket).filter((serial) => before.includes(serial)).length;
    assert.equal(kept, isNew ? 0 : 3, JSON.stringify([change, options]));
  }
});

test("a certificate is renewed once it ends within the buffer, and warned about before", async (t) => {
  for (const [conf, days, isNew, warned] of [
    ["certs_ttl = 40\n", 29, false, false],
    ["certs_ttl = 40\n", 31, false, true],
    ["certs_ttl = 40\n", 39, false, true],
    ["certs_ttl = 40\n", 40, true, false],
    ["certs_ttl = 40\n", 400, true, false],
    ["certs_ttl = 40\ncerts_renewal_buffer = 9\n", 30, false, true],
    ["certs_ttl = 40\ncerts_renewal_buffer = 9\n", 32, true, false],
    ["certs_ttl = 365\n", 336, false, true],
    ["certs_ttl = 365\n", 334, false, false],
  ] as const) {
    const bucket = await makeBucket(t);
    await run(bucket, { server: {} }, { conf });
    const before = serials(bucket);
    travel(t, days);
    const { warnings } = await run(bucket, { server: {} }, { conf });
    const kept = serials(bucket).filter((serial) => before.includes(serial)).length;
    const row = `${conf} ${days}`;
    assert.equal(kept, isNew ? 0 : 3, row);
    assert.equal(warnings.length, warned ? 1 : 0, row);
    if (warned)
      assert.match(
        warnings[0] ?? "",
        /^workspace\/jobs\/web\/manifest\.json: certs\/server: the first of 3 ends on 20\d\d-.*Z; certs_renewal_buffer/,
      );
    t.mock.timers.reset();
  }
});

test("a buffer that is no shorter than the certificates' time is refused", async (t) => {
  const bucket = await makeBucket(t);
  await assert.rejects(run(bucket, {}, { conf: "certs_ttl = 5\ncerts_renewal_buffer = 5\n" }), {
    code: "ErrInvalidOpsConf",
    message: /certs_renewal_buffer: must be less than certs_ttl \(5\)/,
  });
});

test("another CA means other certificates, and no more", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {} });
  const before = serials(bucket);
  await replaceAuthority(bucket, 1_000);
  await run(bucket, { server: {} });
  const after = serials(bucket);
  assert.equal(after.filter((serial) => before.includes(serial)).length, 0);
  for (const worker of WORKERS) verify(t, caOf(bucket), certificate(bucket, worker));
  assert.equal(bucket.kv().get("ops/worker", "certs/ca.crt"), caOf(bucket));
  await run(bucket, { server: {} });
  assert.deepEqual(serials(bucket), after);
});

test("the certificate of the CA before can stay beside the new one: both are delivered and trusted", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {} });
  const [old, oldCa] = [certificate(bucket, "10.0.0.1"), caOf(bucket)];
  await replaceAuthority(bucket, 1_000);
  await run(bucket, { server: {} });
  const before = serials(bucket);
  writeFileSync(bucket.layout.caCertificate, caOf(bucket) + oldCa);
  await run(bucket, { server: {} });
  assert.deepEqual(serials(bucket), before);
  const delivered = bucket.kv().get("ops/worker", "certs/ca.crt") ?? "";
  for (const pem of [old, certificate(bucket, "10.0.0.1")]) verify(t, delivered, pem);
});

test("near the end of the CA certificates end with it, are not renewed at every build, and there is a warning", async (t) => {
  const bucket = await makeBucket(t);
  await replaceAuthority(bucket, 10);
  const conf = "certs_ttl = 60\ncerts_renewal_buffer = 30\n";
  const { warnings } = await run(bucket, { server: {} }, { conf });
  assert.match(warnings[0] ?? "", /^secrets\/ca\.crt: the CA ends on 20\d\d-.*Z: replace it with `ops ca rotate`$/);
  const end = new X509Certificate(certificate(bucket, "10.0.0.1")).validToDate;
  assert.deepEqual(end, new X509Certificate(caOf(bucket)).validToDate);
  const before = serials(bucket);
  await run(bucket, { server: {} }, { conf });
  assert.deepEqual(serials(bucket), before);
  travel(t, 11);
  await run(bucket, { server: {} }, { conf });
  assert.deepEqual(serials(bucket), before, "there is nothing better");
  await assert.rejects(run(bucket, { server: {}, more: {} }, { conf }), {
    code: "failed",
    message: /^Cannot issue certificates: the CA in secrets\/ca\.crt ended on .*; replace it with `ops ca import --replace`$/,
  });
  await replaceAuthority(bucket, 1_000);
  await run(bucket, { server: {}, more: {} }, { conf });
  verify(t, caOf(bucket), certificate(bucket, "10.0.0.1"), "-attime", String(Math.floor(Date.now() / 1000)));
});

test("what is missing is issued: after another kv.key all, after a loss in the store that one", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {} });
  const before = serials(bucket);
  const damaged = bucket.kv();
  damaged.delete("ops/job/web/worker/fd00::2", "certs/server.crt");
  damaged.flush();
  await run(bucket, { server: {} });
  const repaired = serials(bucket);
  assert.deepEqual([repaired[0] === before[0], repaired[1] === before[1], repaired[2] === before[2]], [true, false, true]);
  assert.ok(
    new X509Certificate(certificate(bucket, "fd00::2")).checkPrivateKey(
      createPrivateKey(stored(bucket, "fd00::2", "server.key") ?? ""),
    ),
  );
  rmSync(bucket.layout.kvKey);
  await initBucket(bucket.dir, { source: false });
  const key = await loadKvKey(bucket.layout);
  const context = { ...bucket.context(), kv: new KvStore(bucket.db, key) };
  await build(context, {});
  const kv = new KvStore(bucket.db, key);
  for (const [index, worker] of WORKERS.entries()) {
    const pem = kv.get(`ops/job/web/worker/${worker}`, "certs/server.crt") ?? "";
    assert.notEqual(new X509Certificate(pem).serialNumber, repaired[index]);
    assert.match(kv.get(`ops/job/web/worker/${worker}`, "certs/server.key") ?? "", /PRIVATE KEY/);
  }
});

test("a certificate that the manifest drops is gone with its key, and so are those of a removed job", async (t) => {
  const bucket = await makeBucket(t);
  const left = () =>
    bucket
      .kv()
      .keys("ops/job/web/worker/10.0.0.1")
      .filter((key) => key.startsWith("certs/"));
  await run(bucket, { server: {}, client: { one: true } });
  assert.deepEqual(left(), ["certs/client.crt", "certs/client.key", "certs/server.crt", "certs/server.key"]);
  await run(bucket, { server: {} });
  assert.deepEqual(left(), ["certs/server.crt", "certs/server.key"]);
  makeWorkspace(bucket.dir, { workers: WORKERS });
  await build(bucket.context(), {});
  assert.deepEqual(left(), []);
  assert.deepEqual(bucket.db.all("SELECT * FROM job_certs WHERE job <> ''"), []);
});

test("a build that fails or is cancelled while certificates are made stores none", async (t) => {
  const bucket = await makeBucket(t);
  await assert.rejects(run(bucket, { server: {} }, { manifest: { min_allocations_count: 9 } }), {
    code: "ErrInsufficientAllocations",
  });
  makeWorkspace(bucket.dir, {
    workers: Array.from({ length: 40 }, (_, index) => `10.0.1.${index}`),
    jobs: { web: { version: "1.0.0", selectors: ["worker"], certs: { server: { key: "rsa" } } } },
  });
  const stop = new AbortController();
  const context = bucket.context("build", stop.signal);
  const running = build(context, {});
  while (!bucket.activity.includes("issuing 40 certificates\n")) await new Promise(setImmediate);
  stop.abort();
  await assert.rejects(running, { code: "cancelled" });
  assert.deepEqual(bucket.db.all("SELECT * FROM job_certs"), []);
  assert.deepEqual(bucket.kv().keys("ops/worker"), []);
});

test("without a usable CA nothing is built", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {} });
  rmSync(bucket.layout.caKey);
  await assert.rejects(run(bucket, { server: {} }), /ca\.crt is there, but not ca\.key/);
  rmSync(bucket.layout.caCertificate);
  await assert.rejects(initBucket(bucket.dir, { source: false }), /Cannot make a CA: the bucket was built with/);
});

test("a file of the workspace in the place of a certificate fails the build", async (t) => {
  const bucket = await makeBucket(t);
  await assert.rejects(run(bucket, { server: {} }, { files: { "workspace/jobs/web/certs/server.key.tpl": "" } }), {
    code: "ErrInvalidJob",
    message: /certs\/server\.key\.tpl: a certificate is put there: use another name/,
  });
});

test("CP-277 the catalog lists the CA and every certificate with its end and how it stands, and no key", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { server: {}, client: { one: true, subject: { common_name: "c" } } }, { conf: "certs_ttl = 40\n" });
  const list = (query: ViewQuery = {}) => catalogView(bucket.db, "certs", query, { limit: 100 }).items;
  const [ca, ...jobs] = list();
  const end = (pem: string) => new X509Certificate(pem).validToDate.toISOString();
  const { days_left, ...shown } = ca ?? {};
  assert.deepEqual(shown, {
    scope: "ca",
    job: "",
    worker: "",
    cert: "",
    common_name: bucket.bucketId,
    not_after: end(caOf(bucket)),
    status: "ok",
  });
  assert.ok(days_left === 3_649 || days_left === 3_650, String(days_left));
  assert.deepEqual(
    jobs.map((row) => [row.scope, row.job, row.worker, row.cert, row.common_name, row.not_after, row.status]),
    WORKERS.flatMap((worker) => [
      ["job", "web", worker, "client", "c", end(certificate(bucket, worker, "client")), "ok"],
      ["job", "web", worker, "server", "web", end(certificate(bucket, worker)), "ok"],
    ]),
  );
  const filtered = list({ jobs: ["web"], workers: ["FD00::2"] });
  assert.deepEqual(
    filtered.map((row) => [row.worker, row.cert]),
    [
      ["fd00::2", "client"],
      ["fd00::2", "server"],
    ],
  );

  for (const [left, status, days] of [
    [11 * DAY_MS - 60_000, "ok", 10],
    [10 * DAY_MS - 60_000, "expiring", 9],
    [60_000, "expiring", 0],
    [-60_000, "expired", -1],
    [-DAY_MS - 60_000, "expired", -2],
  ] as const) {
    // As if the certificates had been issued earlier.
    const shift = Math.floor((Date.parse(String(jobs[0]?.not_after)) - Date.now() - left) / 1000);
    bucket.db.run("UPDATE job_certs SET not_after = not_after - ?1, expiring_from = expiring_from - ?1", shift);
    const [, first] = list();
    assert.deepEqual([first?.status, first?.days_left], [status, days], String(left));
    bucket.db.run("UPDATE job_certs SET not_after = not_after + ?1, expiring_from = expiring_from + ?1", shift);
  }
  const damaged = bucket.kv();
  damaged.delete("ops/job/web/worker/10.0.0.1", "certs/server.crt");
  damaged.delete("ops/worker", "certs/ca.crt");
  damaged.flush();
  const invalid = list().filter((one) => one.status === "invalid");
  assert.deepEqual(
    invalid.map((one) => [one.worker, one.cert]),
    [
      ["", ""],
      ["10.0.0.1", "server"],
    ],
  );
  await replaceAuthority(bucket, 100);
  await run(bucket, { server: {} });
  assert.deepEqual(
    list().map((one) => one.status),
    ["expiring", "ok", "ok", "ok"],
  );
});

test("HR-016 a deploy brings the certificates to the workers as part of the job, keys for their owner only, and renewed ones again", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = { web: { manifest: { certs: { server: {} } } }, plain: {} };
  await deploys.build(jobs);
  assert.equal((await deploys.deploy()).error, undefined);
  const { bucket } = deploys;
  for (const host of HOSTS) {
    const folder = path.join(deploys.folder(host), "jobs", "web", "certs");
    for (const [file, mode, text] of [
      ["ca.crt", "644", caOf(bucket)],
      ["server.crt", "644", certificate(bucket, host)],
      ["server.key", "600", stored(bucket, host, "server.key")],
    ] as const) {
      assert.equal((statSync(path.join(folder, file)).mode & 0o777).toString(8), mode, file);
      assert.equal(readFileSync(path.join(folder, file), "utf8"), text, file);
    }
    const plain = path.join(deploys.folder(host), "jobs", "plain", "certs", "ca.crt");
    assert.equal(readFileSync(plain, "utf8"), caOf(bucket));
  }
  await deploys.build(jobs);
  assert.equal((await deploys.deploy()).updateSeq, 1, "nothing to do");
  const before = serials(bucket, "server", [...HOSTS]);
  jobs.web.manifest.certs.server = { subject: { common_name: "new" } };
  await deploys.build(jobs);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.equal(serials(bucket, "server", [...HOSTS]).filter((serial) => before.includes(serial)).length, 0);
  for (const host of HOSTS) {
    assert.deepEqual(deploys.targets("web", host), ["start", "restart"]);
    assert.deepEqual(deploys.targets("plain", host), ["start"]);
    const file = path.join(deploys.folder(host), "jobs", "web", "certs", "server.crt");
    assert.equal(readFileSync(file, "utf8"), certificate(bucket, host));
  }
});

test("templates read certificates and the CA's, never a private key", async (t) => {
  const deploys = await Deploys.make(t);
  const job = (text: string) => ({ web: { manifest: { certs: { server: {} } }, files: { "out.tpl": text } } });
  const own = (key: string) => `{{ get (printf "ops/job/web/worker/%s" .WorkerIP) "certs/server.${key}" }}`;
  await deploys.build(job(`{{ get "ops/worker" "certs/ca.crt" }}${own("crt")}`));
  assert.equal((await deploys.deploy()).error, undefined);
  const text = readFileSync(path.join(deploys.folder(HOSTS[0]), "jobs", "web", "out"), "utf8");
  assert.equal(text, caOf(deploys.bucket) + certificate(deploys.bucket, HOSTS[0]));
  await deploys.build(job(own("key")));
  const refused = await deploys.deploy();
  assert.match(refused.error?.message ?? "", /a private key is no value: use the file certs\/server\.key/);
});

test("HR-163 an https check trusts the bucket's CA, and no stranger's", async (t) => {
  const deploys = await Deploys.make(t);
  const listener = createServer({}, (_request, response) => response.end("up"));
  listener.on("tlsClientError", () => {}).listen(0, HOSTS[0]);
  await once(listener, "listening");
  t.after(() => listener.close());
  const { port } = listener.address() as AddressInfo;
  const checks = [{ type: "http", scheme: "https", port: "web_port" }];
  const manifest = {
    certs: { server: {} },
    resources: { ports: { web_port: port } },
    health_check: { checks, wait: { attempts: 1, interval_seconds: 1 } },
  };
  await deploys.build({ web: { manifest } }, { hosts: [HOSTS[0]] });
  const stranger = await makeBucket(t);
  await run(stranger, { server: {} }, { workers: [HOSTS[0]] });
  const use = (bucket: TestBucket) =>
    listener.setSecureContext({ cert: certificate(bucket, HOSTS[0]), key: stored(bucket, HOSTS[0], "server.key") ?? "" });
  use(stranger);
  assert.match((await deploys.deploy()).error?.message ?? "", /unable to verify the first certificate/);
  use(deploys.bucket);
  writeFileSync(deploys.bucket.layout.caCertificate, caOf(stranger), { flag: "a" });
  await deploys.build({ web: { manifest } }, { hosts: [HOSTS[0]] });
  for (const trusted of [deploys.bucket, stranger]) {
    use(trusted);
    assert.equal((await deploys.deploy({ force: true })).error, undefined);
  }
});
