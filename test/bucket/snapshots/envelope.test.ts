import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { ownSigner, readFace, sealedHeader, snapshotSigner, trustAt } from "../../../lib/bucket/snapshots/envelope.ts";
import { manifestEntries } from "../../../lib/bucket/snapshots/manifest.ts";
import { snapshotNames } from "../../../lib/bucket/snapshots/snapshots.ts";
import { writeTar } from "../../../lib/codec/archive/tar-write.ts";
import { signingKey } from "../../../lib/core/signing-key.ts";
import { writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const HEAD = {
  ...{ format: 2, bucket_id: "0190a5e8-0000-7000-8000-00000000000a", schema_version: SCHEMA_VERSION, program_version: "1" },
  ...{ created_at: "2026-01-01T00:00:00.000Z", note: "n", source_revision: "" },
};
const BYTES = "47DEQpj8HBSa+/TImW+5JA==";
const SEAL = { for: "recipient" as const, salt: BYTES, check: BYTES, recipient: "x25519:a", ephemeral: BYTES };

function setUp(t: TestContext) {
  const file = path.join(temporaryFolder(t), "s.tar.gz.sealed");
  /** Without fields that say nothing. */
  const face = async (bytes: Uint8Array | string) => {
    writeFileSync(file, bytes);
    return JSON.parse(JSON.stringify(await readFace(file)));
  };
  const told = async (bytes: Uint8Array | string) => {
    const error = (await face(bytes).catch((thrown: unknown) => thrown)) as Error & { code?: string };
    return [error.code, error.message.replace(`Cannot use the snapshot ${file}: `, "")];
  };
  return { face, told };
}

test("CP-640 what stands before a sealed snapshot is read without a key, and what is no head is told", async (t) => {
  const { face, told } = setUp(t);
  const header = sealedHeader(HEAD, "SHA256:x", SEAL);
  assert.deepEqual(await face(Buffer.concat([header, Buffer.from("sealed\n bytes")])), {
    head: HEAD,
    seal: SEAL,
    signer: "SHA256:x",
  });
  assert.deepEqual(await face(header), { head: HEAD, seal: SEAL, signer: "SHA256:x" });
  assert.deepEqual(await told(header.subarray(0, -1)), ["failed", "it is cut off in its head"]);
  const magic = "ops sealed snapshot 1\n";
  assert.deepEqual(await told(magic), ["failed", "it is cut off in its head"]);
  const long = (length: number) => sealedHeader({ ...HEAD, note: "x".repeat(length) }, "s", SEAL);
  const room = 64 * 1024 - long(0).length;
  assert.equal((await face(long(room))).head.note.length, room);
  assert.deepEqual(await told(long(room + 1)), ["failed", "it is cut off in its head"]);
  const [code, message] = await told(`${magic}{\n`);
  assert.deepEqual([code, message?.startsWith("its head is not right: ")], ["failed", true]);
  const wrong = async (more: object) =>
    (await told(`${magic}${JSON.stringify({ ...HEAD, signer: "s", seal: SEAL, ...more })}\n`))[1];
  assert.match(String(await wrong({ signer: "x".repeat(101) })), /^its head is not right: signer /);
  assert.match(
    String(await wrong({ seal: { ...SEAL, recipient: undefined } })),
    /^its head is not right: seal the recipient is missing/,
  );
  assert.equal((await face(`${magic}${JSON.stringify({ ...HEAD, signer: "s", seal: SEAL, later: 1 })}\n`)).signer, "s");
  assert.equal((await told(sealedHeader({ ...HEAD, schema_version: SCHEMA_VERSION + 1 }, "s", SEAL)))[0], "schema_too_new");
  for (const none of ["", "ops sealed", "ops sealed snapshot 2\n{}\n", "x"])
    assert.match(
      String((await told(none))[1]),
      /^(the archive is not readable as gzip|it does not begin with manifest\.json)/,
      none,
    );
});

test("the face of a snapshot in clear is that of its manifest, with the key that has signed it", async (t) => {
  const { face } = setUp(t);
  const key = await signingKey(path.join(temporaryFolder(t), "key"));
  const sum = "a".repeat(64);
  const manifest = { ...HEAD, rows: {}, files: [{ path: "data/ops.db", mode: "0600" as const, size_bytes: 0, sha256: sum }] };
  const archive = gzipSync(Buffer.concat(await Array.fromAsync(writeTar(manifestEntries(manifest, key)))));
  assert.deepEqual(await face(archive), { head: HEAD, seal: null, signer: key.fingerprint });
});

test("CP-641 a bucket that stands alone signs with its own key, one below a root with that of the server", async (t) => {
  const root = temporaryFolder(t);
  const [alone, below] = [layoutOf(path.join(root, "alone")), layoutOf(path.join(root, HEAD.bucket_id.toUpperCase()))];
  for (const layout of [alone, below])
    assert.deepEqual([await ownSigner(layout), await trustAt(layout)], [undefined, { signers: [], unsigned: false }]);
  const [own, servers] = [await snapshotSigner(alone), await snapshotSigner(below)];
  assert.notEqual(own.fingerprint, servers.fingerprint);
  assert.equal((await signingKey(alone.signingKey)).fingerprint, own.fingerprint);
  assert.equal((await signingKey(path.join(root, "audit.key"))).fingerprint, servers.fingerprint);
  assert.equal((await snapshotSigner(alone)).fingerprint, own.fingerprint, "there is one key");
  assert.deepEqual(await trustAt(below, { signer: "x" }), { signers: [servers.fingerprint, "x"], unsigned: false });
});

test("the snapshots of a bucket are the files with a name that a snapshot gets", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.deepEqual(await snapshotNames(layout), []);
  const [first, second] = ["20260102T030405.678Z-0123abcd", "20260102T030405.678Z-ffffffff"];
  const files = [`${first}.tar.gz`, `${first}.tar.gz.sealed`, `${second}.tar.gz.sealed`];
  const others = [
    `.${first}.tar.gz`,
    `${first}.tar`,
    `${first}x.tar.gz`,
    `x${first}.tar.gz`,
    `${first}.tar.gz.x`,
    first,
    "20260102T030405.678Z-0123ABCD.tar.gz",
  ];
  writeTree(layout.snapshots, Object.fromEntries([...files, ...others].map((name) => [name, ""])));
  assert.deepEqual((await snapshotNames(layout)).sort(), [first, second]);
});
