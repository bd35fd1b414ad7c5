import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { ofSnapshot, requireTrusted, trustAt } from "../../../lib/bucket/snapshots/envelope.ts";
import {
  headIn,
  isPrivatePath,
  manifestEntries,
  readManifestEntries,
  requireKnownFormat,
  type SnapshotManifest,
} from "../../../lib/bucket/snapshots/manifest.ts";
import { withoutSuffix } from "../../../lib/bucket/snapshots/snapshots.ts";
import { readTar } from "../../../lib/codec/archive/tar-read.ts";
import { type TarInput, writeTar } from "../../../lib/codec/archive/tar-write.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { signingKey } from "../../../lib/core/signing-key.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const SUM = "a".repeat(64);
const file = (name: string, more: object = {}) => ({ path: name, mode: "0600" as const, size_bytes: 1, sha256: SUM, ...more });
const DATABASE = file("data/ops.db");
const HEAD = {
  format: 2,
  bucket_id: "0190a5e8-0000-7000-8000-00000000000a",
  schema_version: SCHEMA_VERSION,
  program_version: "1.0.0",
  created_at: "2026-01-01T00:00:00.000Z",
  note: "",
  source_revision: "",
};
const MANIFEST: SnapshotManifest = { ...HEAD, rows: { job: 1 }, files: [DATABASE] };

async function setUp(t: TestContext) {
  const key = await signingKey(path.join(temporaryFolder(t), "signing.key"));
  const readEntries = (entries: TarInput[]) => readManifestEntries(readTar(writeTar(entries)));
  /** Signs a manifest, however wrong it is, and reads it. */
  const read = (more: object) => readEntries(manifestEntries({ ...MANIFEST, ...more }, key));
  const listing = (...files: object[]) => read({ files: [DATABASE, ...files] });
  return { key, read, readEntries, listing };
}

test("a signed manifest is read back with the fingerprint of its signer, and fields of later programs are passed over", async (t) => {
  const { key, read, readEntries } = await setUp(t);
  const own = await read({});
  assert.deepEqual([structuredClone(own.manifest), own.signer], [MANIFEST, key.fingerprint]);
  const later = await read({ later: 1, rows: {} });
  assert.deepEqual([later.signer, { ...later.manifest.rows }], [key.fingerprint, {}]);
  const [manifest] = manifestEntries({ ...MANIFEST, format: 1 }, key) as [TarInput];
  assert.equal((await readEntries([manifest])).signer, null);
});

test("CP-641 what is no manifest with its signature is told as that", async (t) => {
  const { key, readEntries } = await setUp(t);
  const [manifest, signature] = manifestEntries(MANIFEST, key) as [TarInput, TarInput];
  const text = (name: string, value: string): TarInput => {
    const bytes = Buffer.from(value);
    return { path: name, mode: 0o600, size: bytes.length, content: [bytes] };
  };
  const [bare, signed] = ["it does not begin with manifest.json, so it is no snapshot", "manifest.json and manifest.sig"];
  const forged = "its signature does not belong to its manifest: it was forged or damaged";
  for (const [entries, message] of [
    [[], bare],
    [[signature], bare],
    [[{ path: "manifest.json", mode: 0o755, size: 0 }], bare],
    [[manifest], `it does not begin with ${signed}, so it is no snapshot`],
    [[manifest, manifest], `it does not begin with ${signed}, so it is no snapshot`],
    [[manifest, text("manifest.sig", "{")], forged],
    [[manifest, text("manifest.sig", "{}")], forged],
    [[manifest, text("manifest.sig", JSON.stringify({ signer: key.publicKey, signature: "x" }))], forged],
    [[manifest, text("manifest.sig", JSON.stringify({ signer: "x", signature: "x".repeat(201) }))], forged],
  ] as [TarInput[], string][])
    await assert.rejects(readEntries(entries), { code: "failed", message });
});

test("each field of a manifest is of its form, and each file is a part of a bucket", async (t) => {
  const { read, listing } = await setUp(t);
  const content = (sum: string, seal = "") => `data/contents/${sum}${seal}`;
  for (const name of ["bucket.json", "ops.conf", "secrets/a/b", ".ssh/x", "workspace/x", "templates/x", content(SUM)])
    await listing(file(name));
  for (const mode of ["0600", "0644", "0755"]) await listing(file("ops.conf", { mode }));
  await listing(file(content("b".repeat(64), ".sealed"), { size_bytes: 0 }));
  const wrongField: [more: object, place: string][] = [
    [{ format: 0 }, "format"],
    [{ bucket_id: "x" }, "bucket_id"],
    [{ bucket_id: `x${HEAD.bucket_id}` }, "bucket_id"],
    [{ bucket_id: `${HEAD.bucket_id}0` }, "bucket_id"],
    [{ schema_version: 0 }, "schema_version"],
    [{ note: 5 }, "note"],
    [{ rows: { job: -1 } }, "rows/job"],
    [{ source_revision: undefined }, "source_revision"],
    ...[{ path: "x".repeat(1_025) }, { mode: "0666" }, { size_bytes: -1 }, { size_bytes: 256 * 1024 ** 3 + 1 }].map(
      (more): [object, string] => [{ files: [{ ...DATABASE, ...more }] }, `files/0/${Object.keys(more)[0]}`],
    ),
    ...[`${SUM}a`, `x${SUM}`, SUM.slice(1), SUM.toUpperCase()].map((sha256): [object, string] => [
      { files: [{ ...DATABASE, sha256 }] },
      "files/0/sha256",
    ]),
  ];
  for (const [more, place] of wrongField)
    await assert.rejects(
      read(more),
      new RegExp(`^Failure: its manifest is not right: ${place} `),
      JSON.stringify(more).slice(0, 99),
    );
  const none = "that is no part of a bucket that a snapshot holds";
  const wrongPlace: [name: string, why: string][] = [
    ["logs/x", none],
    ["manifest.json", none],
    ["", none],
    ["data/x", "no such file can be there"],
    ["data", "no such file can be there"],
    ["data/ops.db-wal", "no such file can be there"],
    [`${content(SUM)}/x`, "no such file can be there"],
    [`x${content(SUM)}`, none],
    [content(SUM.slice(1)), "no such file can be there"],
    [content(SUM, ".sealedx"), "no such file can be there"],
    ["ops.conf/x", "no such file can be there"],
    ["bucket.json/x", "no such file can be there"],
    ["secrets", "no such file can be there"],
    ["workspace/../x", '".." in its path is not allowed'],
    [content("b".repeat(64)), "its sum is not its name"],
    ["data/ops.db", "it is listed twice"],
  ];
  for (const [name, why] of wrongPlace)
    await assert.rejects(listing(file(name)), { code: "failed", message: `its manifest lists ${JSON.stringify(name)}: ${why}` });
  await listing(file("workspace/x", { size_bytes: 256 * 1024 ** 3 - 1 }));
  await assert.rejects(
    listing(file("workspace/x", { size_bytes: 256 * 1024 ** 3 })),
    /its manifest lists more than a snapshot can hold/,
  );
  await assert.rejects(read({ files: [file("ops.conf")] }), { code: "failed", message: "it holds no database" });
});

test("a snapshot of this program or an earlier one is known, and one of a later program is told as that", async (t) => {
  const { read } = await setUp(t);
  for (const more of [{}, { format: 1 }, { schema_version: 1 }]) requireKnownFormat({ ...HEAD, ...more });
  const message = (schema: number) =>
    `it was made by ops 1.0.0 with schema ${schema}, this program knows ${SCHEMA_VERSION}; use a newer ops`;
  for (const [more, schema] of [
    [{ format: 3 }, SCHEMA_VERSION],
    [{ schema_version: SCHEMA_VERSION + 1 }, SCHEMA_VERSION + 1],
  ] as const) {
    const tooNew = { code: "schema_too_new", message: message(schema) };
    assert.throws(() => requireKnownFormat({ ...HEAD, ...more }), tooNew);
    await assert.rejects(read(more), tooNew);
  }
  const { format, ...others } = HEAD;
  assert.equal(JSON.stringify(headIn({ ...others, format, more: 1 } as never)), JSON.stringify(HEAD));
});

test("CP-105 keys, database and labels of a snapshot are their owner's alone, the source is not", () => {
  const paths = [
    "data/ops.db",
    "data/contents/x",
    "secrets/kv.key",
    ".ssh/x",
    "bucket.json",
    "ops.conf",
    "workspace/secrets/x",
    "templates/x",
  ];
  assert.deepEqual(paths.map(isPrivatePath), [true, true, true, true, true, false, false, false]);
  for (const name of ["a.tar.gz", "a.tar.gz.sealed", "a"]) assert.equal(withoutSuffix(name), "a");
  for (const name of ["a.tar.gz.x", "a.tar", "axtarxgz", "a.sealed"]) assert.equal(withoutSuffix(name), name);
});

test("CP-641 a signer is believed where it is the place's own or named, and nobody where that is said", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.deepEqual(await trustAt(layout), { signers: [], unsigned: false });
  assert.deepEqual(await trustAt(layout, { signer: "b", unsigned: true }), { signers: ["b"], unsigned: true });
  const { fingerprint } = await signingKey(path.join(temporaryFolder(t), "x"));
  requireTrusted(fingerprint, { signers: ["b", fingerprint], unsigned: false });
  requireTrusted(null, { signers: [], unsigned: true });
  const other = `it is signed by a, not by the key of this place: compare with the server that made it, then give --signer a`;
  const unknown = "it is not signed: whoever can write files may have made it; if it is of an older ops, give --unsigned";
  for (const unsigned of [true, false])
    assert.throws(() => requireTrusted("a", { signers: ["b"], unsigned }), { code: "failed", message: other });
  assert.throws(() => requireTrusted(null, { signers: ["a"], unsigned: false }), { code: "failed", message: unknown });
});

test("trouble with a snapshot names its file, but for a cancel", async () => {
  const of = (error: Error) =>
    ofSnapshot("s.tar.gz", () => {
      throw error;
    });
  const cancelled = new Failure("cancelled", "cancelled");
  await assert.rejects(of(cancelled), cancelled);
  for (const [error, code, why] of [
    [new Failure("schema_too_new", "newer"), "schema_too_new", "newer"],
    [new Failure("not_found", "gone"), "failed", "gone"],
    [new Error("odd"), "failed", "odd"],
    [Object.assign(new Error("x"), { code: "ENOSPC" }), "failed", "the disk is full"],
  ] as const)
    await assert.rejects(of(error), { code, message: `Cannot use the snapshot s.tar.gz: ${why}`, cause: error });
  assert.equal(await ofSnapshot("x", () => 1), 1);
});
