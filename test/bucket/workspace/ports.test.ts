import assert from "node:assert/strict";
import { test } from "node:test";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { assignPorts, isPortName, type PortNumbers, ports } from "../../../lib/bucket/workspace/ports.ts";
import { check } from "../../../lib/core/shape.ts";

type Jobs = Record<string, Record<string, number | null>>;

function assign(jobs: Jobs, stored: Record<string, Record<string, number>> = {}, pool = { min: 30_000, max: 30_003 }) {
  const problems = new Problems();
  const requests = Object.entries(jobs).map(([job, ports]) => ({ job, file: job, ports: new Map(Object.entries(ports)) }));
  const before: PortNumbers = new Map(Object.entries(stored).map(([job, ports]) => [job, new Map(Object.entries(ports))]));
  const given = assignPorts(requests, before, pool, problems);
  const numbers = Object.fromEntries([...given].map(([job, ports]) => [job, Object.fromEntries(ports)]));
  return { numbers, errors: problems.errors.map(sentenceOf) };
}

const CASES: { name: string; jobs: Jobs; stored?: Record<string, Record<string, number>>; numbers: object }[] = [
  {
    name: "ports get the lowest free numbers, jobs and names in order",
    jobs: { b: { b1: null }, a: { z: null, y: null } },
    numbers: { a: { y: 30_000, z: 30_001 }, b: { b1: 30_002 } },
  },
  {
    name: "a port keeps its number, and a new one gets the gap",
    jobs: { a: { a1: null }, b: { b1: null } },
    stored: { b: { b1: 30_000 } },
    numbers: { a: { a1: 30_001 }, b: { b1: 30_000 } },
  },
  {
    name: "a number that left the pool is replaced",
    jobs: { a: { a1: null } },
    stored: { a: { a1: 29_999 } },
    numbers: { a: { a1: 30_000 } },
  },
  {
    name: "a fixed number may lie anywhere, and one in the pool is not handed out",
    jobs: { a: { a1: null }, b: { b1: 30_000, b2: 80 } },
    numbers: { a: { a1: 30_001 }, b: { b1: 30_000, b2: 80 } },
  },
  {
    name: "the numbers of removed jobs and names are free in the same build",
    jobs: { new: { n1: 30_000, n2: 30_001 } },
    stored: { old: { o1: 30_000 }, new: { gone: 30_001 } },
    numbers: { new: { n1: 30_000, n2: 30_001 } },
  },
  {
    name: "a port that becomes fixed frees its old number",
    jobs: { a: { a1: 8080 }, b: { b1: 30_000 } },
    stored: { a: { a1: 30_000 } },
    numbers: { a: { a1: 8080 }, b: { b1: 30_000 } },
  },
  {
    name: "a port named like a property of every object is a port like others",
    jobs: { a: { constructor: null } },
    stored: { a: {} },
    numbers: { a: { constructor: 30_000 } },
  },
];

for (const { name, jobs, stored, numbers } of CASES)
  test(name, () => {
    const done = assign(jobs, stored);
    assert.deepEqual(done.errors, []);
    assert.deepEqual(done.numbers, numbers);
  });

const REFUSED: { name: string; jobs: Jobs; stored?: Record<string, Record<string, number>>; error: string }[] = [
  {
    name: "two fixed ports with one number, even of one job",
    jobs: { a: { x: 80, y: 80 } },
    error: "ErrPortCollision: a: resources/ports/y: number 80 is already taken by port x of job a",
  },
  {
    name: "a fixed number that a port from the pool holds",
    jobs: { a: { x: 30_000 }, b: { y: null } },
    stored: { b: { y: 30_000 } },
    error: "ErrPortCollision: a: resources/ports/x: number 30000 is already taken by port y of job b",
  },
  {
    name: "one name in two jobs",
    jobs: { a: { http: 1 }, b: { http: 2 } },
    error: "ErrPortNameCollision: b: resources/ports/http: the name is used by job a already",
  },
  {
    name: "a name that ops/bucket uses itself",
    jobs: { a: { bucket_id: 1 } },
    error: "ErrPortNameCollision: a: resources/ports/bucket_id: the name is used by the bucket itself already",
  },
  {
    name: "more ports than the pool has",
    jobs: { a: { a: null, b: null, c: null, d: null, e: null } },
    error: "ErrPortRangeExhausted: a: resources/ports/e: no number from 30000 to 30003 is free",
  },
];

for (const { name, jobs, stored, error } of REFUSED)
  test(`refused: ${name}`, () => {
    assert.deepEqual(assign(jobs, stored).errors, [error]);
  });

test("a port is named with small letters, digits and _, the first a letter, at most 100", () => {
  for (const name of ["a", "http_2", "a".repeat(100)]) assert.equal(isPortName(name), true, name);
  for (const name of ["", "A", "1a", "_a", "a-b", "a.b", "a b", "a\n", "é", "a".repeat(101)])
    assert.equal(isPortName(name), false, name);
});

test("a port of the pool goes up to the last number of it, and both ends of the pool are kept", () => {
  const one = (stored: number) => assign({ a: { x: null } }, { a: { x: stored } }).numbers;
  assert.deepEqual(
    [30_000, 30_003, 29_999, 30_004].map((number) => one(number)),
    [...[{ a: { x: 30_000 } }, { a: { x: 30_003 } }, { a: { x: 30_000 } }, { a: { x: 30_000 } }]],
  );
  const four = assign({ a: { a: null, b: null, c: null, d: null } });
  assert.deepEqual([four.errors, four.numbers], [[], { a: { a: 30_000, b: 30_001, c: 30_002, d: 30_003 } }]);
  const twice = assign({ a: { x: null }, b: { y: null } }, { a: { x: 30_001 }, b: { y: 30_001 } });
  assert.deepEqual([twice.errors, twice.numbers], [[], { a: { x: 30_001 }, b: { y: 30_000 } }], "the first keeps it");
  assert.deepEqual(assign({ a: {} }), { numbers: { a: {} }, errors: [] });
  assert.deepEqual(assign({ a: { x: 80, y: 80 } }).numbers, { a: { x: 80, y: 0 } });
  for (const name of ["bucket_id", "jobs", "activejobs"]) assert.equal(assign({ a: { [name]: 1 } }).errors.length, 1, name);
  assert.deepEqual(assign({ a: { job: 1, job_id: 2 } }).errors, []);
});

test("the ports of a manifest are numbers, or empty objects for one of the pool; mistakes are named by their port", () => {
  const read = (value: unknown) => {
    const checked = check(ports(), value);
    return checked.ok ? [...checked.value] : checked.problems.map(({ path, message }) => `${path}: ${message}`);
  };
  assert.deepEqual(read({ a: {}, b: 1, c: 65_535 }), [
    ["a", null],
    ["b", 1],
    ["c", 65_535],
  ]);
  const rule = "expected {} for a port from the pool, or a number from 1 to 65535, found";
  assert.deepEqual(read({ a: 0, b: { x: 1 } }), [`a: ${rule} 0`, `b: ${rule} an object`]);
  assert.deepEqual(read({ A: 1, [`a${"b".repeat(100)}`]: 1 }).length, 2);
  assert.deepEqual(read({ A: {} }), ["A: expected small letters, digits and _, the first a letter, at most 100, as name"]);
  assert.deepEqual(read([]), [": expected an object, found a list"]);
});
