import assert from "node:assert/strict";
import { test } from "node:test";
import { Redactor } from "../../lib/core/redact.ts";

function redact(secrets: string[], text: string): string {
  const redactor = new Redactor();
  for (const secret of secrets) redactor.add(secret);
  return redactor.apply(text);
}

const SECRET = "pä$$ w'or\"d/?+\\end";

const forms: [string, string][] = [
  ["as it is", SECRET],
  ["in base64", Buffer.from(SECRET).toString("base64")],
  ["in base64 without padding", Buffer.from(SECRET).toString("base64").replace(/=+$/, "")],
  ["in base64url", Buffer.from(SECRET).toString("base64url")],
  ["in a URL", encodeURIComponent(SECRET)],
  ["in JSON", JSON.stringify(SECRET).slice(1, -1)],
  ["in a URL that escapes all it can", "p%C3%A4%24%24%20w%27or%22d%2F%3F%2B%5Cend"],
  ["in a form", "p%C3%A4%24%24+w%27or%22d%2F%3F%2B%5Cend"],
  ["in a URL in small letters", "p%c3%a4%24%24%20w%27or%22d%2f%3f%2b%5cend"],
  ["in JSON of ASCII letters", "p\\u00e4$$ w'or\\\"d/?+\\\\end"],
  ["in single quotes of a shell", SECRET.replaceAll("'", "'\\''")],
  ["in the quotes that Python's shlex makes", `pä$$ w'"'"'or"d/?+\\end`],
  ["with backslashes, as printf %q writes it", "pä\\$\\$\\ w\\'or\\\"d/\\?+\\\\end"],
];

for (const [what, form] of forms)
  test(`a secret is masked ${what}, wherever it stands and however often`, () => {
    assert.equal(redact([SECRET], `a${form}b ${form}`), "a***b ***");
  });

test("a secret of several lines is masked as a whole and line by line", () => {
  const key = "-----BEGIN KEY-----\r\nMIIEvQIBADAN\r\nshort\r\n-----END KEY-----\r\n";
  assert.equal(redact([key], `<${key}>`), "<***>");
  assert.equal(redact([key], "say MIIEvQIBADAN, short"), "say ***, short");
});

test("the longest secret is masked first, so that no end of it stays", () => {
  assert.equal(redact(["password", "password-with-tail"], "password-with-tail password"), "*** ***");
  assert.equal(redact(["password-with-tail", "password"], "password-with-tail password"), "*** ***");
});

test("values under 8 bytes are left alone, 8 bytes in fewer characters are not", () => {
  assert.equal(redact(["1234567", ""], "1234567"), "1234567");
  assert.equal(redact(["ääää"], "ääää"), "***");
});

test("a secret is text, not a pattern", () => {
  assert.equal(redact([".*.*.*.*", "(((((((("], "abc (((((((( .*.*.*.*"), "abc *** ***");
});

test("secrets that turn up later are masked from then on", () => {
  const redactor = new Redactor();
  assert.equal(redactor.apply("first-secret second-secret"), "first-secret second-secret");
  redactor.add("first-secret");
  assert.equal(redactor.apply("first-secret second-secret"), "*** second-secret");
  redactor.add("second-secret");
  assert.equal(redactor.apply("first-secret second-secret"), "*** ***");
});

test("half a surrogate pair in a secret is no reason to fail", () => {
  assert.equal(redact(["secret-\ud800-x"], "a secret-\ud800-x"), "a ***");
});
