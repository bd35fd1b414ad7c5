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
  ["in hex", Buffer.from(SECRET).toString("hex")],
  ["in hex in capitals", Buffer.from(SECRET).toString("hex").toUpperCase()],
  ["in a URL", encodeURIComponent(SECRET)],
  ["in JSON", JSON.stringify(SECRET).slice(1, -1)],
  ["in a URL in small letters that escapes what it must", "p%c3%a4%24%24%20w'or%22d%2f%3f%2b%5cend"],
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

test("a line of a secret that has 8 bytes is masked, a shorter one is not", () => {
  assert.equal(redact(["12345678\n1234567"], "12345678 1234567"), "*** 1234567");
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

for (const alphabet of ["base64", "base64url"] as const)
  for (const before of ["", "a", "ab", "abc", "user:"])
    test(`a secret is masked inside a longer text in ${alphabet}, ${before.length} bytes behind its beginning`, () => {
      for (const secret of ["12345678", "correct/horse?", "\u00ff\u00fe\u00fb\u00ff\u00fe", SECRET])
        for (const behind of ["", "z", "zz", ":and more"]) {
          const encoded = Buffer.from(before + secret + behind).toString(alphabet);
          const masked = redact([secret], `x ${encoded} y`);
          assert.match(masked, /^x [\w+/-]*\*\*\*[\w+/=-]* y$/, encoded);
          const [front = "", back = ""] = masked.slice(2, -2).split("***");
          // At each end one letter encodes bits of the secret and of its neighbour: no more than that one is left.
          const own = Math.ceil((Buffer.byteLength(before) * 8) / 6);
          assert.ok(front.length <= own, masked);
          assert.ok(back.replace(/=+$/, "").length <= Math.ceil((Buffer.byteLength(behind) * 8) / 6) + 1, masked);
        }
    });

test("common text in base64 is left alone", () => {
  const text = Buffer.from("the quick brown fox jumps over the lazy dog").toString("base64");
  assert.equal(redact(["12345678", "lazy cats"], text), text);
});

test("secrets that overlap are masked as one, and no part is left", () => {
  assert.equal(redact(["secret-one", "one-of-two"], "<secret-one-of-two>"), "<***>");
  assert.equal(redact(["secret-one", "one-of-two"], "secret-oneone-of-two"), "******", "these only touch");
});

test("every secret of many is found, and nothing else is changed", () => {
  const secrets = Array.from({ length: 3_000 }, (_, index) => `secret ${index * 7_919} of many`);
  const redactor = new Redactor();
  for (const secret of secrets) redactor.add(secret);
  const text = secrets.map((secret) => `[${secret}] secret 5 of many`).join("\n");
  assert.equal(redactor.apply(text), secrets.map(() => "[***] secret 5 of many").join("\n"));
});

test("a sentence is masked by the one secret that there is", () => {
  const redactor = new Redactor();
  redactor.add("something");
  assert.equal(redactor.sentence("says something"), "says ***");
});

test("a sentence keeps names, text does not", () => {
  const redactor = new Redactor();
  redactor.add("frontend");
  redactor.add("appender");
  redactor.add("something else");
  redactor.keep(["frontend", "conf/org.appender/log.conf"]);
  const text = "job frontend: conf/org.appender/log.conf says something else";
  assert.equal(redactor.sentence(text), "job frontend: conf/org.appender/log.conf says ***");
  assert.equal(redactor.apply(text), "job ***: conf/org.***/log.conf says ***");
  redactor.keep(["something else"]);
  assert.equal(redactor.sentence(text), text, "a name that is known later");
  redactor.add("log.conf says");
  assert.equal(redactor.sentence(text), "job frontend: conf/org.appender/*** something else");
});

test("the longest form of all secrets tells how far ahead one has to look", () => {
  const redactor = new Redactor();
  assert.equal(redactor.longest, 0);
  redactor.add("\u00e4\u00e4\u00e4\u00e4");
  assert.equal(redactor.longest, 4 * "%C3%A4".length);
  redactor.add("12345678");
  assert.equal(redactor.longest, 4 * "%C3%A4".length);
});

test("bytes are cut before a secret that the cut would be in, and behind one that begins them", () => {
  const redactor = new Redactor();
  assert.equal(redactor.cut(Buffer.from("no secret is known"), 4), 4);
  redactor.add("s\u00e4cr\u00e9t-value");
  const bytes = Buffer.from("\u00fc a s\u00e4cr\u00e9t-value b");
  const [start, end] = [5, 5 + Buffer.byteLength("s\u00e4cr\u00e9t-value")];
  for (let limit = 1; limit < bytes.length; limit++)
    assert.equal(redactor.cut(bytes, limit), limit > start && limit < end ? start : limit);
  assert.equal(redactor.cut(bytes.subarray(start), 3), end - start);
  assert.equal(redactor.cut(bytes.subarray(start - 1), 3), 1);
  assert.equal(redactor.cut(bytes.subarray(start), 0), 0);
});
