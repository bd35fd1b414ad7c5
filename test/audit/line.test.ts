import assert from "node:assert/strict";
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { AUDIT_PURPOSE } from "../../lib/audit/key.ts";
import {
  AUDIT_KINDS,
  type AuditEntry,
  auditLine,
  isSignedLine,
  LINE_FIELDS,
  NO_LINE,
  parseAuditLine,
} from "../../lib/audit/line.ts";
import { type SigningKey, signatureOf, signingKey } from "../../lib/core/signing-key.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const folder = temporaryFolder();
const key: SigningKey = await signingKey(path.join(folder, "audit.key"));
const AT = "2026-11-26T10:00:00.000Z";

test("the kinds of lines are those that the page about the audit explains", () => {
  const page = readFileSync(new URL("../../docs/audit.md", import.meta.url), "utf8");
  const [, table = ""] = page.split("## What is recorded");
  const rows = table.split("\nEach of")[0]?.matchAll(/^\| (`.*?`) \|/gm) ?? [];
  const explained = [...rows].flatMap(([, names = ""]) => names.split(", ").map((name) => name.replaceAll("`", "")));
  assert.deepEqual([...AUDIT_KINDS].sort(), explained.filter((name) => name !== "what").sort());
});

test("a line has its number, time and chain first, what it tells in one order, and the signature of all that last", () => {
  const told: AuditEntry = {
    what: "outcome",
    of: 3,
    who: "ada",
    via: "bearer",
    role: "deploy",
    from: "192.0.2.7",
    request: "q1",
    action: "PUT /api/x",
    bucket: "b",
    run: "r",
    kind: "deploy",
    params: { jobs: ["a"] },
    reason: "why",
    outcome: "done",
    code: 200,
    error: "none",
    count: 2,
    happened: AT,
    facts: { run: "r" },
    torn: { bytes: 1, sha256: "00" },
  };
  const mixed = Object.fromEntries(Object.entries(told).reverse()) as unknown as AuditEntry;
  const { text, head } = auditLine(mixed, NO_LINE, AT, key);
  const first = { audit: 1, n: 1, at: AT, prev: "0".repeat(64), key: key.fingerprint };
  const signed = JSON.stringify({ ...first, ...told }).slice(0, -1);
  const [, signature = ""] = /^,"sig":"(.*)"\}$/.exec(text.slice(signed.length)) ?? [];
  assert.equal(text, `${signed},"sig":"${signature}"}`);
  const x = Buffer.from(key.publicKey, "base64").toString("base64url");
  const publicKey = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  assert.ok(verify(null, Buffer.from(`ops audit\0${signed}`), publicKey, Buffer.from(signature, "base64")));
  assert.deepEqual(head, { n: 1, at: AT, hash: createHash("sha256").update(text).digest("hex") });
  assert.deepEqual(parseAuditLine(Buffer.from(text)), {
    n: 1,
    at: AT,
    prev: first.prev,
    key: first.key,
    ...told,
    hash: head.hash,
  });
  const next = auditLine({ what: "alive" }, head, AT, key);
  const short = `{"audit":1,"n":2,"at":"${AT}","prev":"${head.hash}","key":"${key.fingerprint}","what":"alive","sig":"`;
  assert.ok(next.text.startsWith(short), "what means nothing is left out");
});

test("what is told of the fields of a line has its bounds and its kinds", () => {
  const bounds = Object.entries(LINE_FIELDS).map(([name, { schema }]) => {
    const { type, minimum, enum: kinds } = schema as { type: string; minimum?: number; enum?: string[] };
    return [name, type, ...(minimum === undefined ? [] : [minimum]), ...(kinds ? [kinds.length] : [])].join(" ");
  });
  assert.deepEqual(bounds, [
    ...[`what string ${AUDIT_KINDS.length}`, "of integer 1", "who string", "via string", "role string", "from string"],
    ...["request string", "action string", "bucket string", "run string", "kind string", "params object", "reason string"],
    ...["outcome string", "code integer", "error string", "count integer 1", "happened string", "facts object", "torn object"],
  ]);
});

test("bytes are a line where they are an object with a number, a time and a line before", () => {
  const line = { audit: 1, n: 1, at: AT, prev: "00", key: "k", what: "alive" };
  const parsed = (value: unknown) => parseAuditLine(Buffer.from(JSON.stringify(value)));
  const hash = createHash("sha256").update(JSON.stringify(line)).digest("hex");
  assert.deepEqual(parsed(line), { n: 1, at: AT, prev: "00", key: "k", what: "alive", hash });
  assert.deepEqual(Object.keys(parsed({ ...line, sig: "s" }) ?? {}).includes("sig"), false);
  const wrong = [null, 1, [], { ...line, audit: 2 }, { ...line, n: "1" }, { ...line, at: 1 }, { ...line, prev: null }];
  for (const value of wrong) assert.equal(parsed(value), undefined, JSON.stringify(value));
  assert.equal(parseAuditLine(Buffer.from("{")), undefined);
});

test("a line is signed where every byte is as its owner has signed it", async () => {
  const { text } = auditLine({ what: "alive", who: "ünï" }, NO_LINE, AT, key);
  const bytes = Buffer.from(text);
  assert.equal(isSignedLine(bytes, key.publicKey), true);
  for (let at = 0; at < bytes.length; at++) {
    const other = Buffer.from(bytes);
    other[at] = (other[at] as number) ^ 1;
    assert.equal(isSignedLine(other, key.publicKey), false, `byte ${at}`);
  }
  const changed = [` ${text}`, `${text} `, `${text}\n`, text.slice(1), text.slice(0, -1), text.slice(-98), text.slice(-50), ""];
  for (const one of changed) assert.equal(isSignedLine(Buffer.from(one), key.publicKey), false, one);
  const { publicKey } = await signingKey(path.join(folder, "other.key"));
  assert.equal(isSignedLine(bytes, publicKey), false);
  const forAnother = signatureOf(key, "ops snapshot", Buffer.from(text.slice(0, -98)));
  assert.equal(isSignedLine(Buffer.from(`${text.slice(0, -98)},"sig":"${forAnother}"}`), key.publicKey), false);
  const again = signatureOf(key, AUDIT_PURPOSE, Buffer.from(text.slice(0, -98)));
  assert.equal(isSignedLine(Buffer.from(`${text.slice(0, -98)},"sig":"${again}"}`), key.publicKey), true);
});
