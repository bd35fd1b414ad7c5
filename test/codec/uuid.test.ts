import assert from "node:assert/strict";
import test from "node:test";
import { idNamed, isUuid, timeOfUuid, uuidV5, uuidV7 } from "../../lib/codec/uuid.ts";

const DNS = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

test("isUuid takes every version in lower case, and nothing around it", () => {
  for (const id of [DNS, "00000000-0000-0000-0000-000000000000", uuidV7()]) assert.ok(isUuid(id), id);
  for (const text of ["", "x", DNS.toUpperCase(), `${DNS}\n`, ` ${DNS}`, DNS.replaceAll("-", ""), `${DNS}0`, `{${DNS}}`])
    assert.ok(!isUuid(text), JSON.stringify(text));
});

test("a name-based id follows RFC 9562", () => {
  const ids: [namespace: string, name: string, id: string][] = [
    [DNS, "www.example.com", "2ed6657d-e927-568b-95e1-2665a8aea6a2"],
    [DNS, "", "4ebd0208-8328-5d69-8c44-ec50939c0967"],
    [DNS, "é|10.0.0.1", "82797ce0-a237-5af4-9a5e-d8225510dbc3"],
  ];
  for (const [namespace, name, id] of ids) assert.equal(uuidV5(namespace, name), id);
  assert.notEqual(uuidV5(DNS, "db|10.0.0.1"), uuidV5(uuidV5(DNS, "other"), "db|10.0.0.1"));
});

test("a time-based id starts with its milliseconds, so that text order is time order", () => {
  const id = uuidV7(1_645_557_742_000);
  assert.ok(id.startsWith("017f22e2-79b0-7"), id);
  assert.match(id, /^.{19}[89ab]/);
  const rising = [0, 1, 255, 65_536, 1_700_000_000_000, 2 ** 47].map((now) => uuidV7(now));
  assert.deepEqual(rising.toSorted(), rising);
  assert.equal(new Set(Array.from({ length: 1000 }, () => uuidV7(5))).size, 1000);
});

test("the time in an id is that of its making, to the millisecond", () => {
  for (const now of [0, 1, 1_645_557_742_001, 0xfedc_ba98_7654]) assert.equal(timeOfUuid(uuidV7(now)), now);
});

test("a time-based id takes the current time by default", () => {
  const before = Date.now();
  const time = Number.parseInt(uuidV7().replace("-", "").slice(0, 12), 16);
  assert.ok(time >= before && time <= Date.now());
});

test("an id is named by at least 4 letters of its beginning or end, if these name one id only", () => {
  const ids = [
    "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70",
    "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e71",
    "0198f3a3-0000-7a31-9d52-6f1d8a3cffff",
  ];
  for (const [given, index] of [
    ["5e70", 0],
    ["8A3C5E71", 1],
    ["0198f3a3", 2],
    [ids[1] ?? "", 1],
  ] as const)
    assert.equal(idNamed(given, ids, "run"), ids[index]);
  const several = `Cannot tell which run "0198f3a2" means: it may be ${ids[0]}, ${ids[1]}`;
  assert.throws(() => idNamed("0198f3a2", ids, "run"), { code: "usage", message: several });
  assert.throws(() => idNamed("e70", ids, "run"), { code: "usage", message: /"e70" means: give at least 4 letters of its id$/ });
  assert.throws(() => idNamed("3a2-", ids, "revision"), { code: "revision_not_found", message: 'there is no revision "3a2-"' });
  const names = ["20260504T120000Z-2", "20260504T120000Z", "abc"];
  for (const name of names)
    assert.equal(idNamed(name, names, "snapshot"), name, "a whole name, the beginning of another or short");
  const many = Array.from({ length: 12 }, (_, index) => `abcd${index}`);
  assert.throws(() => idNamed("abcd", many, "snapshot"), /abcd9 and 2 more$/);
});
