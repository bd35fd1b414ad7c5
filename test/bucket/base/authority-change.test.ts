import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import {
  beginRotation,
  dropOldAuthority,
  isAuthorityCut,
  issueFromNext,
  readRotation,
  replaceAuthority,
  settleAuthority,
} from "../../../lib/bucket/base/authority-change.ts";
import { loadAuthority, makePair } from "../../../lib/bucket/base/certificates.ts";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { onFaultPoint } from "../../../lib/core/self.ts";
import { takeBucket } from "../../../lib/run/recovery.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

async function newBucket(t: TestContext): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  return layout;
}

const certificateIn = ({ caCertificate }: Layout) => readFileSync(caCertificate, "utf8");
const namesIn = (text: string) =>
  text
    .split(/(?<=END CERTIFICATE-----\n)/)
    .filter(Boolean)
    .map((one) => new X509Certificate(one).subject);

/** Does the work as if the process was killed at this point, then what the next holder of the lock does first. */
async function cutAt(point: string, layout: Layout, work: () => Promise<unknown>): Promise<void> {
  onFaultPoint((reached) => {
    if (reached === point) throw new Error("killed here");
  });
  try {
    await assert.rejects(work(), /killed here/);
  } finally {
    onFaultPoint(() => {});
  }
  assert.equal(await isAuthorityCut(layout), true);
  await (await takeBucket(layout, "run", "test")).release();
  assert.equal(await isAuthorityCut(layout), false);
}

test("a rotation trusts the next CA beside the present one, then signs with it, then drops the one before", async (t) => {
  const layout = await newBucket(t);
  const first = await loadAuthority(layout);
  const next = await makePair("next");
  assert.equal((await beginRotation(layout, next)).phase, "trust");
  assert.equal((await loadAuthority(layout)).fingerprint, first.fingerprint);
  assert.deepEqual(namesIn(certificateIn(layout)), [`CN=${first.commonName}`, "CN=next"]);
  assert.equal(statSync(layout.caChange).mode & 0o777, 0o600);
  const trusting = await readRotation(layout);
  assert.equal((await issueFromNext(layout, trusting ?? assert.fail())).phase, "issue");
  assert.equal((await loadAuthority(layout)).commonName, "next");
  assert.deepEqual(namesIn(certificateIn(layout)), ["CN=next", `CN=${first.commonName}`]);
  await dropOldAuthority(layout, (await readRotation(layout)) ?? assert.fail());
  assert.equal(certificateIn(layout), next.certificate);
  assert.equal((await loadAuthority(layout)).commonName, "next");
  assert.equal(await readRotation(layout), undefined);
  assert.equal(existsSync(layout.caChange), false);
});

test("other certificates in ca.crt stay through a rotation", async (t) => {
  const layout = await newBucket(t);
  const { commonName, pem } = await loadAuthority(layout);
  const other = await makePair("other");
  await replaceAuthority(layout, { certificate: pem + other.certificate, key: readFileSync(layout.caKey, "utf8") });
  const begun = await beginRotation(layout, await makePair("next"));
  assert.deepEqual(namesIn(certificateIn(layout)), [`CN=${commonName}`, "CN=other", "CN=next"]);
  const issuing = await issueFromNext(layout, begun);
  assert.deepEqual(namesIn(certificateIn(layout)), ["CN=next", `CN=${commonName}`, "CN=other"]);
  await dropOldAuthority(layout, issuing);
  assert.deepEqual(namesIn(certificateIn(layout)), ["CN=next", "CN=other"]);
});

for (const point of ["ca: noted", "ca: key written", "ca: certificate written"])
  test(`each step of a change of the CA that is killed at "${point}" is finished by the next command`, async (t) => {
    const layout = await newBucket(t);
    const { commonName } = await loadAuthority(layout);
    const imported = await makePair("imported");
    await cutAt(point, layout, () => replaceAuthority(layout, imported));
    assert.equal((await loadAuthority(layout)).commonName, "imported");
    assert.equal(existsSync(layout.caChange), false);
    await cutAt(point, layout, async () => beginRotation(layout, await makePair(commonName)));
    assert.equal((await loadAuthority(layout)).commonName, "imported");
    const begun = (await readRotation(layout)) ?? assert.fail();
    await cutAt(point, layout, () => issueFromNext(layout, begun));
    assert.equal((await loadAuthority(layout)).commonName, commonName);
    const issuing = (await readRotation(layout)) ?? assert.fail();
    await cutAt(point, layout, () => dropOldAuthority(layout, issuing));
    assert.deepEqual(namesIn(certificateIn(layout)), [`CN=${commonName}`]);
    assert.equal(await readRotation(layout), undefined);
    await settleAuthority(layout);
  });

test("a note of a change that no ops wrote stops what would finish it", async (t) => {
  const layout = await newBucket(t);
  writeFileSync(layout.caChange, "{");
  const message = `Cannot read ${layout.caChange}: no ops wrote it; bring it back from a snapshot`;
  for (const work of [readRotation, settleAuthority]) await assert.rejects(work(layout), { code: "failed", message });
});
