import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { loadAuthority } from "../../../lib/bucket/base/certificates.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { selfSigned } from "../../../lib/codec/crypto/x509.ts";
import { ops } from "../../helpers/command-line.ts";
import { openssl } from "../../helpers/openssl.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { opsAtTerminal } from "../../helpers/terminal.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

/** A bucket, and a way to run commands of `ops ca` in it. */
async function bucket(t: TestContext) {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  const layout = layoutOf(dir);
  const ca = (words: string[], input = "") => ops(["ca", ...words, "--bucket-dir", dir], { input });
  const build = async () => {
    makeWorkspace(dir, { workers: [{ host: "127.0.0.1", connection: "local" }], jobs: { web: { certs: { server: {} } } } });
    assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  };
  return { layout, ca, build };
}

/** Has openssl make an authority; answers the files of certificate and key. */
function madeElsewhere(t: TestContext, name: string, ...options: string[]): [certificate: string, key: string] {
  const folder = temporaryFolder(t);
  const [certificate, key] = [path.join(folder, "ca.crt"), path.join(folder, "ca.key")];
  const kind = options.includes("-newkey") ? [] : ["-newkey", "rsa:2048"];
  const files = ["-keyout", key, "-out", certificate];
  openssl(["req", "-x509", "-nodes", "-subj", `/CN=${name}`, "-days", "30", ...kind, ...options, ...files]);
  return [certificate, key];
}

/** An authority that is valid from so many days until so many days from now. */
async function madeFor(t: TestContext, ...days: [number, number]): Promise<[certificate: string, key: string]> {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const [notBefore, notAfter] = days.map((one) => new Date(Date.now() + one * 86_400_000)) as [Date, Date];
  const folder = temporaryFolder(t);
  const [certificate, key] = [path.join(folder, "ca.crt"), path.join(folder, "ca.key")];
  writeFileSync(certificate, await selfSigned("timed", keys, { notBefore, notAfter }));
  writeFileSync(key, keys.privateKey.export({ type: "pkcs8", format: "pem" }));
  return [certificate, key];
}

const commonName = async ({ layout }: Awaited<ReturnType<typeof bucket>>) => (await loadAuthority(layout)).commonName;

test("ops ca import puts an existing CA in the place of one that nothing was built with, its key from a file or stdin", async (t) => {
  const it = await bucket(t);
  const [certificate, key] = madeElsewhere(t, "corporate");
  const done = await it.ca(["import", certificate, key]);
  assert.equal(done.code, 0, done.stderr);
  assert.match(
    done.stdout,
    /^the CA of the bucket is this one now; build, then deploy: corporate, until 20.*, SHA-256 [0-9a-f]{64}\n$/,
  );
  assert.equal(await commonName(it), "corporate");
  assert.equal(statSync(it.layout.caKey).mode & 0o777, 0o600);
  assert.equal(existsSync(it.layout.caChange), false);
  assert.match((await it.ca(["import", certificate, key])).stdout, /^the CA of the bucket is this one already/);
  const [other, otherKey] = madeElsewhere(t, "other", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256");
  const piped = await it.ca(["import", other, "--json"], readFileSync(otherKey, "utf8"));
  assert.equal(piped.code, 0, piped.stderr);
  assert.deepEqual(
    { ...JSON.parse(piped.stdout), not_after: "", fingerprint: "" },
    { outcome: "imported", common_name: "other", fingerprint: "", not_after: "" },
  );
  await it.build();
});

test("a CA that jobs trust is replaced only by words that say so, or as the next one of a rotation", async (t) => {
  const it = await bucket(t);
  await it.build();
  const before = await commonName(it);
  const [certificate, key] = madeElsewhere(t, "corporate");
  const refused = await it.ca(["import", certificate, key]);
  assert.equal(refused.code, 2);
  assert.match(
    refused.stderr,
    /Cannot replace the CA: the jobs of the bucket trust the present CA; --rotate lets .*; --replace puts/,
  );
  assert.equal((await it.ca(["import", certificate, key, "--rotate", "--replace"])).code, 2);
  const same = path.join(temporaryFolder(t), "same.crt");
  writeFileSync(same, [it.layout.caCertificate, certificate].map((file) => readFileSync(file, "utf8")).join(""));
  const twice = await it.ca(["import", same, it.layout.caKey, "--rotate"]);
  assert.deepEqual([twice.code, twice.stderr], [2, "ops: --rotate: this certificate is the CA's already\n"]);
  assert.equal(await commonName(it), before);
  const begun = await it.ca(["import", certificate, key, "--rotate"]);
  assert.match(begun.stdout, /^the rotation to this CA has begun: build and deploy/, begun.stderr);
  assert.equal(await commonName(it), before);
  assert.ok(readFileSync(it.layout.caCertificate, "utf8").includes(readFileSync(certificate, "utf8")));
  assert.match((await it.ca(["import", certificate, key])).stderr, /a rotation of the CA is going on/);
  assert.match((await it.ca(["import", certificate, key, "--rotate"])).stderr, /end it with `ops ca rotate`/);
  assert.equal((await it.ca(["import", certificate, key, "--replace"])).code, 0);
  assert.equal(await commonName(it), "corporate");
  assert.equal(existsSync(it.layout.caChange), false);
});

test("ops ca import refuses what cannot sign, and leaves the CA as it was", async (t) => {
  const it = await bucket(t);
  const before = await commonName(it);
  const [certificate, key] = madeElsewhere(t, "one");
  const [, otherKey] = madeElsewhere(t, "two");
  const [leaf, leafKey] = madeElsewhere(t, "leaf", "-addext", "basicConstraints=critical,CA:FALSE");
  const [edwards, edwardsKey] = madeElsewhere(t, "ed", "-newkey", "ed25519");
  const [late, lateKey] = await madeFor(t, -2, -1);
  const [early, earlyKey] = await madeFor(t, 1, 2);
  const locked = path.join(temporaryFolder(t), "locked.key");
  writeFileSync(locked, openssl(["rsa", "-aes256", "-passout", "pass:secret"], readFileSync(key, "utf8")));
  for (const [words, message] of [
    [[certificate, otherKey], /is not the key of/],
    [[leaf, leafKey], /is not the certificate of an authority/],
    [[edwards, edwardsKey], /its key is ed25519; it must be EC/],
    [[late, lateKey], /ended on 20/],
    [[early, earlyKey], /begins only on 20/],
    [[certificate, locked], /is protected by a passphrase; give the key without one/],
    [[key, key], /cannot be read: it is not in PEM form/],
    [[certificate, path.join(it.layout.root, "none")], /there is no file/],
    [[certificate], /stdin cannot be read: it is not in PEM form/],
  ] as const) {
    const { code, stderr } = await it.ca(["import", ...words], "");
    assert.equal(code, 2, stderr);
    assert.match(stderr, message);
  }
  const typed = await opsAtTerminal(["ca", "import", certificate, "--bucket-dir", it.layout.root], []);
  assert.deepEqual([typed.code, typed.shown], [2, "ops: name the file of the key, or give the key on stdin\r\n"]);
  assert.equal(await commonName(it), before);
  const lock = await acquireLock(it.layout, "run", "deploy");
  assert.equal((await it.ca(["import", certificate, key])).code, 75);
  await lock.release();
});
