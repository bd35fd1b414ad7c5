import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import {
  authorityCert,
  certKey,
  ensureAuthority,
  expiringFrom,
  hasEarlierRequests,
  isAuthorityInUse,
  issuedCerts,
  loadAuthority,
  makePair,
  saveCert,
  utc,
} from "../../../lib/bucket/base/certificates.ts";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { openssl, textOf, verify } from "../../helpers/openssl.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

async function newBucket(t: TestContext): Promise<{ layout: Layout; bucketId: string }> {
  const layout = layoutOf(temporaryFolder(t));
  const { bucketId } = await initBucket(layout.root, { source: false });
  return { layout, bucketId };
}

const modeOf = (file: string) => (statSync(file).mode & 0o777).toString(8);
const pairOf = ({ caCertificate, caKey }: Layout) => [caCertificate, caKey].map((file) => readFileSync(file, "utf8"));

test("init makes the CA of a bucket: P-384, named after it, for ten years, its key for the owner only", async (t) => {
  const { layout, bucketId } = await newBucket(t);
  assert.equal(modeOf(layout.caKey), "600");
  assert.equal(modeOf(layout.caCertificate), "644");
  assert.deepEqual(readdirSync(layout.secrets).sort(), ["ca.crt", "ca.key", "kv.key"]);
  const [certificate = ""] = pairOf(layout);
  verify(t, certificate, certificate);
  const text = textOf(certificate);
  assert.ok(text.includes(`Subject: CN = ${bucketId}`) && text.includes("secp384r1"), text);
  const { notAfter, commonName } = await loadAuthority(layout);
  assert.equal(commonName, bucketId);
  const { validFromDate } = new X509Certificate(certificate);
  assert.equal(Math.round((notAfter.getTime() - Date.now()) / 86_400_000), 3650);
  assert.equal(Math.round((Date.now() - validFromDate.getTime()) / 60_000), 5);
});

test("a second init, or several at once, keep the CA", async (t) => {
  const { layout } = await newBucket(t);
  const before = pairOf(layout);
  await initBucket(layout.root, { source: false });
  assert.deepEqual(pairOf(layout), before);
  const other = layoutOf(temporaryFolder(t));
  await Promise.all(Array.from({ length: 5 }, () => initBucket(other.root, { source: false })));
  assert.equal(existsSync(other.caPending), false);
  await loadAuthority(other);
});

test("an init that was killed at any point while it made the CA is finished by the next one", async (t) => {
  const { layout } = await newBucket(t);
  const [certificate = "", key = ""] = pairOf(layout);
  const pending = JSON.stringify({ certificate, key });
  for (const left of [
    { [layout.caPending]: pending },
    { [layout.caPending]: pending, [layout.caKey]: key },
    { [layout.caPending]: pending, [layout.caKey]: key, [layout.caCertificate]: certificate },
  ]) {
    for (const file of [layout.caPending, layout.caKey, layout.caCertificate]) rmSync(file, { force: true });
    for (const [file, text] of Object.entries(left)) writeFileSync(file, text, { mode: 0o600 });
    await initBucket(layout.root, { source: false });
    assert.deepEqual(pairOf(layout), [certificate, key]);
    assert.equal(existsSync(layout.caPending), false);
    assert.equal(modeOf(layout.caKey), "600");
  }
});

test("what was left by an init that lost the race does not touch the CA", async (t) => {
  const { layout } = await newBucket(t);
  const before = pairOf(layout);
  writeFileSync(layout.caPending, JSON.stringify({ certificate: "other", key: "other" }));
  await initBucket(layout.root, { source: false });
  assert.deepEqual(pairOf(layout), before);
  assert.equal(existsSync(layout.caPending), false);
});

test("a CA that cannot be used is a failure of init and build, and is never replaced", async (t) => {
  const { layout } = await newBucket(t);
  const { layout: other } = await newBucket(t);
  const [certificate = "", key = ""] = pairOf(layout);
  const [otherCertificate = "", otherKey = ""] = pairOf(other);
  const folder = temporaryFolder(t);
  const [edKey, edFile] = [path.join(folder, "ed.key"), path.join(folder, "ed.crt")];
  const options = ["-nodes", "-newkey", "ed25519", "-subj", "/CN=x", "-keyout", edKey, "-out", edFile];
  openssl(["req", "-x509", ...options]);
  const [leafKey, leafFile] = [path.join(folder, "leaf.key"), path.join(folder, "leaf.crt")];
  const noCa = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", leafKey, "-out", leafFile];
  openssl(["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=x", ...noCa]);
  const read = (file: string) => readFileSync(file, "utf8");
  for (const [crt, pem, message] of [
    [undefined, key, /ca\.key is there, but not ca\.crt; bring it back from a backup/],
    [certificate, undefined, /ca\.crt is there, but not ca\.key/],
    ["rubbish", key, /ca\.crt cannot be read/],
    [certificate, "rubbish", /ca\.key cannot be read/],
    [certificate, "", /ca\.key cannot be read/],
    [certificate, otherKey, /ca\.key is not the key of ca\.crt/],
    [otherCertificate, key, /ca\.key is not the key of ca\.crt/],
    [read(edFile), read(edKey), /its key is ed25519/],
    [read(leafFile), read(leafKey), /ca\.crt is not the certificate of an authority/],
  ] as const) {
    for (const [file, text] of [
      [layout.caCertificate, crt],
      [layout.caKey, pem],
    ] as const)
      if (text === undefined) rmSync(file, { force: true });
      else writeFileSync(file, text);
    const left = readdirSync(layout.secrets);
    await assert.rejects(initBucket(layout.root, { source: false }), { code: "failed", message });
    await assert.rejects(loadAuthority(layout), { code: "failed", message });
    assert.deepEqual(readdirSync(layout.secrets), left);
    if (crt !== undefined) assert.equal(read(layout.caCertificate), crt);
    if (pem !== undefined) assert.equal(read(layout.caKey), pem);
  }
});

test("a symbolic link is not followed", async (t) => {
  const { layout } = await newBucket(t);
  const [, key = ""] = pairOf(layout);
  const elsewhere = path.join(temporaryFolder(t), "ca.key");
  writeFileSync(elsewhere, key);
  rmSync(layout.caKey);
  symlinkSync(elsewhere, layout.caKey);
  await assert.rejects(loadAuthority(layout), { code: "file_not_found", message: /not a regular file/ });
});

test("a CA that is gone is not replaced once certificates were issued; before that it is made", async (t) => {
  const { layout, bucketId } = await newBucket(t);
  rmSync(layout.caKey);
  rmSync(layout.caCertificate);
  await assert.rejects(loadAuthority(layout), { code: "bucket_not_initialized", message: /run `ops init`$/ });
  await assert.rejects(ensureAuthority(layout, bucketId, true), {
    code: "failed",
    message: /^Cannot make a CA: the bucket was built with the one in .*ca\.crt and ca\.key, which are missing/,
  });
  await ensureAuthority(layout, bucketId, false);
  await loadAuthority(layout);
});

const DAY_MS = 86_400_000;

test("a certificate is near its end in the last quarter of its time, at most 30 days, and a CA in the last 180 days", async (t) => {
  const days = (count: number) => (count * DAY_MS - expiringFrom(0, count * DAY_MS)) / DAY_MS;
  assert.deepEqual([4, 60, 120, 124, 365].map(days), [1, 15, 30, 30, 30]);
  assert.equal(expiringFrom(0, 4_004), 3_000, "in whole seconds");
  const { layout, bucketId } = await newBucket(t);
  const authority = await loadAuthority(layout);
  const end = authority.notAfter.getTime();
  assert.deepEqual(authorityCert(authority), {
    ...{ job: "", worker: "", name: "", request: authority.fingerprint, commonName: bucketId },
    ...{ expiringFrom: end - 180 * DAY_MS, notAfter: end },
  });
  assert.equal(utc(Date.parse("2026-01-31T12:00:00.999Z")), "2026-01-31T12:00:00Z");
});

test("certificates are stored in the place of those before, and requests of an earlier ops are told apart", async (t) => {
  const { db } = await makeBucket(t);
  const cert = { job: "web", worker: "w", name: "x", request: "sha256:1", commonName: "c", expiringFrom: 1_000, notAfter: 2_000 };
  const own = { ...cert, job: "", worker: "", name: "", request: "fingerprint" };
  for (const one of [cert, { ...cert, name: "y" }, own, { ...cert, commonName: "d" }]) saveCert(db, one);
  assert.deepEqual(
    issuedCerts(db)
      .map((one) => certKey(one))
      .sort(),
    ["web|w|x", "web|w|y", "||"],
  );
  assert.deepEqual(
    issuedCerts(db).find(({ name }) => name === "x"),
    { ...cert, commonName: "d" },
  );
  assert.deepEqual([hasEarlierRequests(db), isAuthorityInUse(db)], [false, false]);
  saveCert(db, { ...cert, request: "xsha256:1" });
  assert.equal(hasEarlierRequests(db), true);
});

test("a CA with others behind it, and one whose files are text of another form, are told by what they are", async (t) => {
  const { layout } = await newBucket(t);
  const [certificate = "", key = ""] = pairOf(layout);
  const other = await makePair("other");
  writeFileSync(layout.caCertificate, certificate + other.certificate);
  const { pem, commonName } = await loadAuthority(layout);
  assert.deepEqual([pem, commonName === "other"], [certificate + other.certificate, false]);
  writeFileSync(layout.caKey, key.replaceAll("-", "+"));
  await assert.rejects(loadAuthority(layout), {
    message: /^Cannot use the CA in .*secrets: ca\.key cannot be read: it is not in PEM form$/,
  });
  writeFileSync(layout.caCertificate, "x".repeat(64 * 1024 + 1));
  await assert.rejects(loadAuthority(layout), /has more than 65536 bytes/);
});
