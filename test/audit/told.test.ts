import assert from "node:assert/strict";
import { test } from "node:test";
import { fingerprintOf, toldParams } from "../../lib/audit/told.ts";

const KEY = Buffer.alloc(32, 7);
const SCHEMA = {
  type: "object",
  properties: {
    secret: { type: "string", writeOnly: true },
    deep: { type: "array", items: { properties: { key: { writeOnly: true } } } },
  },
};

const told = (
  params: Record<string, unknown>,
  masked = (_name: string, _text: string): Promise<string> | undefined => undefined,
) => toldParams(params, { key: KEY, schema: SCHEMA, masked });

test("parameters are kept as they are; of secrets, at whatever depth, only a fingerprint", async () => {
  const params = { jobs: ["a", "b"], count: 3, none: null, secret: "s", deep: [{ key: { id: 1 }, name: "x" }] };
  const deep = [{ key: fingerprintOf('{"id":1}', KEY), name: "x" }];
  assert.deepEqual(await told(params), { ...params, secret: fingerprintOf("s", KEY), deep });
  const nothing = { secret: null, deep: [{ key: undefined, name: "x" }] };
  assert.deepEqual(await told(nothing), nothing, "there is no secret");
  assert.match(fingerprintOf("s", KEY), /^hmac:[0-9a-f]{32}$/);
  assert.notEqual(fingerprintOf("s", KEY), fingerprintOf("s", Buffer.alloc(32, 8)), "another server has another one");
});

test("of a text of more than 2,000 characters, as it is masked, the beginning is kept and a fingerprint of all", async () => {
  const [fits, long] = ["x".repeat(2_000), "x".repeat(2_001)];
  const short = `${fits}… (2001 characters: ${fingerprintOf(long, KEY)})`;
  assert.deepEqual(await told({ fits, long }), { fits, long: short });
  const masked = async (name: string, text: string) => `${name}: ${text.length}`;
  assert.deepEqual(await told({ long }, masked), { long: "long: 2001" });
});

test("of a list of more than 100 items the first are kept, and a fingerprint of all", async () => {
  const fits = Array.from({ length: 100 }, (_, index) => index);
  const long = [...fits, 100, 101];
  const more = `and 2 more: ${fingerprintOf(JSON.stringify(long), KEY)}`;
  assert.deepEqual(await told({ fits, long }), { fits, long: [...fits, more] });
});

test("of parameters of more than 16 KiB only the size and a fingerprint are kept", async () => {
  const list = Array.from({ length: 7 }, () => "x".repeat(2_000));
  const room = 16 * 1024 - JSON.stringify({ list: [...list, ""] }).length - '""'.length;
  const sized = (more: number) => ({ list: [...list, "x".repeat(2_000)], more: "x".repeat(room - 2_008 + more) });
  assert.deepEqual(await told(sized(0)), sized(0));
  const fingerprint = fingerprintOf(JSON.stringify(sized(1)), KEY);
  assert.deepEqual(await told(sized(1)), { too_long: 16 * 1024 + 1, fingerprint });
});
