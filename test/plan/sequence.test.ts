import assert from "node:assert/strict";
import { test } from "node:test";
import type { DemandGraph } from "../../lib/plan/demands.ts";
import { deploymentSequence } from "../../lib/plan/sequence.ts";
import { SEED, seeded } from "../helpers/random.ts";

function graph(edges: Record<string, string>): DemandGraph {
  return new Map(Object.entries(edges).map(([job, upstreams]) => [job, new Set(upstreams.split(" ").filter(Boolean))]));
}

const LEVELS: { name: string; edges: Record<string, string>; levels: Record<string, number> }[] = [
  { name: "HR-093 a job without demands has 0", edges: { a: "", b: "" }, levels: { a: 0, b: 0 } },
  { name: "HR-091 a chain has 0, 1, 2", edges: { c: "b", b: "a", a: "" }, levels: { a: 0, b: 1, c: 2 } },
  {
    name: "HR-092 T-31 a diamond with unequal arms counts the longer one",
    edges: { top: "", left: "top", right: "left", end: "right top", beside: "top" },
    levels: { top: 0, left: 1, right: 2, end: 3, beside: 1 },
  },
  { name: "a bucket without jobs has no levels", edges: {}, levels: {} },
];

for (const { name, edges, levels } of LEVELS)
  test(name, () => {
    const found = deploymentSequence(graph(edges));
    assert.deepEqual(Object.fromEntries(found.levels ?? []), levels);
  });

const CYCLES: { name: string; edges: Record<string, string>; cycle: string[] }[] = [
  { name: "HR-082 T-30 two jobs that demand each other are a cycle", edges: { a: "b", b: "a" }, cycle: ["a", "b"] },
  { name: "HR-082 three jobs in a circle are a cycle", edges: { a: "c", b: "a", c: "b" }, cycle: ["a", "c", "b"] },
  {
    name: "only the jobs of the circle are shown, not those that depend on it or that it needs",
    edges: { a: "m", m: "n root", n: "m", root: "", z: "a" },
    cycle: ["m", "n"],
  },
];

for (const { name, edges, cycle } of CYCLES)
  test(name, () => {
    assert.deepEqual(deploymentSequence(graph(edges)), { levels: undefined, cycle });
  });

test("a chain of 20,000 jobs is no problem", () => {
  const jobs = Array.from({ length: 20_000 }, (_, index) => [`j${index}`, index === 0 ? "" : `j${index - 1}`]);
  assert.equal(deploymentSequence(graph(Object.fromEntries(jobs))).levels?.get("j19999"), 19_999);
});

test("HR-092 on 300 random graphs every level is the longest path that a naive search finds", () => {
  for (let seed = SEED; seed < SEED + 300; seed++) {
    const random = seeded(seed);
    const size = 2 + Math.floor(random() * 9);
    const names = Array.from({ length: size }, (_, index) => `j${index}`).sort(() => random() - 0.5);
    const edges = names.map((name, at): [string, string] => [
      name,
      names.filter((_, other) => other < at && random() < 0.4).join(" "),
    ]);
    const made = graph(Object.fromEntries(edges.sort(() => random() - 0.5)));
    const longest = (job: string): number => Math.max(0, ...[...(made.get(job) ?? [])].map((one) => longest(one) + 1));
    const { levels } = deploymentSequence(made);
    for (const name of names) assert.equal(levels?.get(name), longest(name), `seed ${seed}, job ${name}`);
  }
});
