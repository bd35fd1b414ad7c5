import assert from "node:assert/strict";
import test from "node:test";
import { Redactor } from "../../lib/core/redact.ts";

function redactor(...secrets: string[]): Redactor {
  const result = new Redactor();
  for (const secret of secrets) result.add(secret);
  return result;
}

test("without secrets text stays as it is", () => {
  assert.equal(redactor().apply("password=hunter2222"), "password=hunter2222");
});

test("a secret is masked wherever it stands, however often", () => {
  assert.equal(
    redactor("hunter2222").apply("a hunter2222, hunter2222x\nhunter222"),
    "a ***, ***x\nhunter222",
  );
});

test("a secret is masked in base64, URL, JSON and shell-quoted form too", () => {
  const secret = `it's "50%"\t/é?&`;
  const forms = [
    secret,
    Buffer.from(secret).toString("base64"),
    Buffer.from(secret).toString("base64").replace(/=+$/, ""),
    Buffer.from(secret).toString("base64url"),
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    secret.replaceAll("'", "'\\''"),
  ];
  for (const form of forms) assert.equal(redactor(secret).apply(`<${form}>`), "<***>", form);
});

test("each line of a secret is masked on its own, because logs are cut into lines", () => {
  const key = "-----BEGIN KEY-----\nMIIBVwIBADANBgkq\nshort\n-----END KEY-----\n";
  const masked = redactor(key);
  assert.equal(masked.apply("out: MIIBVwIBADANBgkq"), "out: ***");
  assert.equal(masked.apply("short"), "short");
  assert.equal(masked.apply(`<${key}>`), "<***>");
});

test("values under 8 bytes are not masked, counted in bytes", () => {
  assert.equal(redactor("1234567").apply("1234567"), "1234567");
  assert.equal(redactor("éééé").apply("éééé"), "***");
});

test("the longest secret wins where several start, in whatever order they came", () => {
  for (const secrets of [
    ["password", "password-long"],
    ["password-long", "password"],
  ])
    assert.equal(redactor(...secrets).apply("password-long password-lo"), "*** ***-lo");
});

test("characters with a meaning in patterns and replacements are taken as they are", () => {
  const secret = ["a.*+?^$&$", "{}()|[]\\b"].join("");
  assert.equal(redactor(secret).apply(`x${secret}y axxxxxxxxxxxxxxxxb`), "x***y axxxxxxxxxxxxxxxxb");
});

test("a secret added later is masked from then on", () => {
  const masked = redactor("first-secret");
  assert.equal(masked.apply("first-secret second-secret"), "*** second-secret");
  masked.add("second-secret");
  assert.equal(masked.apply("first-secret second-secret"), "*** ***");
});
