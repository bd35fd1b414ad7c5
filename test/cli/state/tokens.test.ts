import assert from "node:assert/strict";
import { test } from "node:test";
import { createToken, listTokens, revokeToken, type TokenBook } from "../../../lib/cli/state/tokens.ts";
import { parsed, printed } from "../../helpers/printed.ts";

const TOKEN = {
  ...{ id: "1", name: "ci", role: "deploy", buckets: ["b1", "b2"], created_at: "2026-11-24T00:00:00Z", created_by: "eve" },
  ...{ expires_at: "2026-12-24T00:00:00Z", expired: false, last_used_on: "2026-11-25", totp: "common" },
};

/** A book that makes such a token and lists these; it notes what it is asked for. */
function bookOf(made: object = {}, all: object[] = []) {
  const asked: unknown[] = [];
  const book = {
    all: async () => all,
    async make(wanted: object) {
      asked.push(wanted);
      return { ...TOKEN, token: "ops_0", totp_secret: null, totp_uri: null, ...made };
    },
    revoke: async (given: string) => void asked.push(given),
    bucketNamed: async (given: string) => `id of ${given}`,
  };
  return { asked, book: book as unknown as TokenBook };
}

test("a token is asked for as the flags say, each bucket once", async (t) => {
  const wanted = async (values: Record<string, string>, ...switches: string[]) => {
    const { asked, book } = bookOf();
    await printed(t, () => createToken(book, parsed(values, switches, ["ci"])));
    return asked[0];
  };
  const none = { name: "ci", role: undefined, buckets: undefined, lifetime_s: undefined, totp: undefined };
  assert.deepEqual(await wanted({}), none);
  assert.deepEqual(await wanted({ role: "read", bucket: "a,b,a" }), { ...none, role: "read", buckets: ["id of a", "id of b"] });
  assert.deepEqual(await wanted({}, "totp"), { ...none, totp: "own" });
  assert.deepEqual(await wanted({}, "no-totp"), { ...none, totp: "none" });
  await assert.rejects(wanted({}, "totp", "no-totp"), { code: "usage", message: "give --totp or --no-totp, not both" });
  for (const [expires, lifetime_s] of [
    ["90d", 7_776_000],
    ["9999d", 863_913_600],
    ["1h30m", 5_400],
    ["1s", 1],
  ] as const)
    assert.deepEqual(await wanted({ expires }), { ...none, lifetime_s });
  for (const expires of ["0d", "0s", "999ms", "1500ms", "10000d", "d", "x1d", "1dx", "soon", ""]) {
    const message = `--expires "${expires}": expected a time from now, such as 90d, 12h or 1h30m`;
    await assert.rejects(wanted({ expires }), { code: "usage", message });
  }
});

test("the token alone goes to stdout, what it may do to stderr, with its secret where it has one", async (t) => {
  const make = async (made: object, ...switches: string[]) => {
    const told = await printed(t, () => createToken(bookOf(made).book, parsed({}, switches, ["ci"])));
    assert.equal(told.answer, 0);
    return told;
  };
  const end = "The token is shown only now: keep it, or hand it over, at once.\n";
  const plain = await make({});
  const facts = [
    "name     ci",
    "role     deploy",
    "buckets  b1, b2",
    "expires  2026-12-24T00:00:00Z",
    "totp     as the server asks for it",
  ];
  assert.deepEqual([plain.out, plain.err], ["ops_0\n", `${facts.join("\n")}\n${end}`]);
  const rest = await make({ buckets: null, expires_at: null, totp: "none" });
  assert.match(rest.err, /\nbuckets {2}all\nexpires {2}never\ntotp {5}none\nThe token/);
  const uri = "otpauth://totp/a:b?secret=MZXW6&issuer=a";
  const own = await make({ totp: "own", totp_secret: "MZXW6", totp_uri: uri });
  assert.ok(own.err.includes(`totp     of its own, below\nsecret  MZXW6\nuri     ${uri}\n`), own.err);
  assert.ok(own.err.endsWith(`\n${end}`) && own.err.split("\n").length > 20, own.err);
  assert.equal(JSON.parse((await make({}, "json")).out).token, "ops_0");
});

test("tokens are listed with their ends and last uses; a token that is revoked is named", async (t) => {
  const others = { ...TOKEN, name: "old", buckets: null, last_used_on: null, totp: "none" };
  const all = [TOKEN, { ...others, expired: true }, { ...others, name: "root", expires_at: null }];
  const { out } = await printed(t, () => listTokens(bookOf({}, all).book, parsed()));
  assert.deepEqual(
    out.split("\n").map((line) => line.split(/ {2,}/)),
    [
      ["name", "role", "buckets", "expires", "last used", "totp", "made by"],
      ["ci", "deploy", "b1,b2", "2026-12-24T00:00:00Z", "2026-11-25", "common", "eve"],
      ["old", "deploy", "all", "2026-12-24T00:00:00Z (over)", "never", "none", "eve"],
      ["root", "deploy", "all", "never", "never", "none", "eve"],
      [""],
    ],
  );
  assert.match((await printed(t, () => listTokens(bookOf().book, parsed()))).out, /^there is no token but the server's own/);
  const { asked, book } = bookOf();
  const revoked = await printed(t, () => revokeToken(book, parsed({}, [], ["ci"])));
  assert.deepEqual([asked, revoked.out], [["ci"], 'the token "ci" is revoked; what it has started goes on\n']);
  const json = await printed(t, () => revokeToken(book, parsed({}, ["json"], ["ci"])));
  assert.deepEqual(JSON.parse(json.out), { token: "ci" });
});
