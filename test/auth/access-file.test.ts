import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { readAccess, TOKEN_BUCKETS, TOKEN_FIELDS, TOKEN_NAME } from "../../lib/auth/access-file.ts";
import { Failure } from "../../lib/core/errors.ts";
import { check } from "../../lib/core/shape.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const TOKEN = {
  id: ID,
  name: "ada",
  role: "deploy",
  buckets: null as string[] | null,
  created_at: "2026-03-01T10:00:00.000Z",
  created_by: "root",
  expires_at: null,
  last_used_on: null as string | null,
  totp: "common",
  sha256: "0".repeat(64),
  totp_secret: null as string | null,
};
const folder = temporaryFolder();
const file = path.join(folder, "access.json");

/** What is wrong with a state; undefined where it is read as it is. */
async function wrongWith(state: object): Promise<string | undefined> {
  writeFileSync(file, JSON.stringify(state), { mode: 0o600 });
  try {
    assert.deepEqual(JSON.stringify(await readAccess(file)), JSON.stringify(state));
    return undefined;
  } catch (error) {
    assert.ok(error instanceof Failure && error.cause instanceof Failure, String(error));
    const [, why] = /^Cannot use .*access\.json: (.*); nobody is let in before it is mended$/.exec(error.message) ?? [];
    return why ?? error.message;
  }
}

/** So many tokens that differ. */
function tokens(count: number): object[] {
  return Array.from({ length: count }, (_, at) => {
    const digits = at.toString(16).padStart(12, "0");
    return { ...TOKEN, id: ID.slice(0, -12) + digits, name: `p${at}`, sha256: digits.padStart(64, "f") };
  });
}

test("CP-505 a name has 1 to 64 letters, digits and ._@-, and is neither root nor an id", () => {
  const pattern = "expected letters, digits and ._@-, a letter or digit first, found ";
  const names: [name: string, wrong?: string][] = [
    ...["a", "7", "Ada.Lovelace_1-x@y.org", "roots", "x".repeat(64), `x${ID}`, `${ID}x`].map((name): [string] => [name]),
    ["x".repeat(65), "must have at most 64 characters"],
    ...["", "-a", ".a", "_a", "@a", "a b", "ä", "a\n", "a/b"].map((name): [string, string] => [
      name,
      pattern + JSON.stringify(name),
    ]),
    ...["root", "Root", "ROOT"].map((name): [string, string] => [name, "root is the name of the server's own token"]),
    ...[ID, ID.toUpperCase()].map((name): [string, string] => [name, "expected a name, found an id"]),
  ];
  for (const [name, wrong] of names) {
    const checked = check(TOKEN_NAME, name);
    assert.equal(checked.ok ? undefined : checked.problems[0]?.message, wrong, name);
  }
});

test("a client that checks by the patterns of the API refuses what only contains a right value", () => {
  const [bucket, day] = [TOKEN_BUCKETS.schema.items, (TOKEN_FIELDS.last_used_on.schema.anyOf as object[])[0]];
  for (const schema of [TOKEN_NAME.schema, TOKEN_FIELDS.id.schema, bucket, day] as { pattern: string; examples: string[] }[]) {
    const [example = ""] = schema.examples;
    const matches = [example, `!${example}`, `${example}!`].map((text) => new RegExp(schema.pattern).test(text));
    assert.deepEqual(matches, [true, false, false], schema.pattern);
  }
});

test("CP-505 each field of a token is checked when the file is read", async () => {
  const cases: [change: object, wrong?: string][] = [
    ...["read", "operate", "deploy", "admin"].map((role): [object] => [{ role }]),
    [{ id: "x" }, 'tokens/0/id expected an id, found "x"'],
    [{ name: "-" }, 'tokens/0/name expected letters, digits and ._@-, a letter or digit first, found "-"'],
    [{ buckets: [ID] }],
    [{ buckets: Array(100).fill(ID) }],
    [{ buckets: [] }, "tokens/0/buckets expected at least 1 item, found 0"],
    [{ buckets: Array(101).fill(ID) }, "tokens/0/buckets expected at most 100 items, found 101"],
    [{ buckets: ["shop"] }, 'tokens/0/buckets/0 expected the id of a bucket, found "shop"'],
    [{ last_used_on: "2026-05-04" }],
    [{ last_used_on: "2026-05-04T" }, 'tokens/0/last_used_on expected a day, found "2026-05-04T"'],
    [{ sha256: `${"0".repeat(64)}0` }, `tokens/0/sha256 expected a SHA-256, found "${"0".repeat(65)}"`],
    [{ sha256: "0".repeat(63) }, `tokens/0/sha256 expected a SHA-256, found "${"0".repeat(63)}"`],
    [{ totp: "none", role: "read" }],
    [{ totp: "none" }, 'the token "ada" has totp none, which goes only with the role read'],
    [{ totp: "own", totp_secret: "GEZDGNBVGY3TQOJQ" }],
    ...[{ totp: "own", totp_secret: "" }, { totp: "own", totp_secret: "no base32" }, { totp_secret: "GEZDGNBVGY3TQOJQ" }].map(
      (change): [object, string] => [change, 'totp and totp_secret of the token "ada" disagree'],
    ),
  ];
  for (const [change, wrong] of cases)
    assert.equal(await wrongWith({ tokens: [{ ...TOKEN, ...change }], approvals: {} }), wrong, JSON.stringify(change));
});

test("CP-505 no two tokens have an id, a name or a sum in common, and there are at most 500", async () => {
  const [one = {}, other = {}] = tokens(2) as (typeof TOKEN)[];
  for (const [field, shown] of [
    ["id", (one as typeof TOKEN).id],
    ["name", "p0"],
    ["sha256", (one as typeof TOKEN).sha256],
  ] as const) {
    const twice = { ...other, [field]: (one as typeof TOKEN)[field] };
    assert.equal(await wrongWith({ tokens: [one, twice], approvals: {} }), `"${shown}" stands there twice`);
  }
  assert.equal(await wrongWith({ tokens: tokens(500), approvals: {} }), undefined);
  assert.equal(await wrongWith({ tokens: tokens(501), approvals: {} }), "tokens expected at most 500 items, found 501");
});

test("CP-505 a bucket, by its id, asks for one or two approvals", async () => {
  const cases: [approvals: object, wrong?: string][] = [
    [{ [ID]: 1 }],
    [{ [ID]: 2 }],
    [{ [ID]: 0 }, `approvals/${ID} expected a number from 1 to 2, found 0`],
    [{ [ID]: 3 }, `approvals/${ID} expected a number from 1 to 2, found 3`],
    ...["shop", `x${ID}`, `${ID}x`].map((name): [object, string] => [
      { [name]: 1 },
      `approvals/${name} expected the id of a bucket as name`,
    ]),
  ];
  for (const [approvals, wrong] of cases)
    assert.equal(await wrongWith({ tokens: [], approvals }), wrong, JSON.stringify(approvals));
});

test("a file of 4 MiB is read, a longer one is refused, and a missing one means that there is no token", async () => {
  const text = '{"tokens":[],"approvals":{}}';
  const most = 4 * 1024 * 1024;
  writeFileSync(file, text.padEnd(most), { mode: 0o600 });
  assert.deepEqual((await readAccess(file)).tokens, []);
  writeFileSync(file, text.padEnd(most + 1));
  await assert.rejects(readAccess(file), { code: "failed", message: /it has more than 4194304 bytes/ });
  assert.deepEqual(await readAccess(path.join(folder, "none.json")), { tokens: [], approvals: {} });
});
