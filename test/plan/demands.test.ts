import assert from "node:assert/strict";
import { test } from "node:test";
import { checkDemands, type DemandGraph, type DemandJob, demandGraph, deploymentSequence } from "../../lib/plan/demands.ts";
import { SEED, seeded } from "../helpers/random.ts";

const after = (name: string, ...jobs: string[]): DemandJob => ({ name, version: "", hooks: [], after: jobs });

/** A job whose hooks are given as `name`, `name -> job.hook`, or `name -> job.hook` with a config. */
function job(name: string, version: string, hooks: Record<string, string | [string, object]> = {}): DemandJob {
  return {
    name,
    version,
    after: [],
    hooks: Object.entries(hooks).map(([hook, demand]) => {
      const [target, config] = typeof demand === "string" ? [demand, {}] : demand;
      const [demandJob = "", demandHook = ""] = target.split(".");
      return { name: hook, demandJob, demandHook, demandConfig: config as Record<string, unknown> };
    }),
  };
}

function codes(jobs: DemandJob[], unreadable: string[] = []): string[] {
  return checkDemands(jobs, new Set(unreadable)).map(({ code, job: name, path }) => `${code} ${name} ${path}`);
}

const up = (version: string) => job("up", version, { check: "" });
const bounds = (config: object) => job("down", "1", { wait: ["up.check", config] });

const CASES: { name: string; jobs: DemandJob[]; wrong: string[] }[] = [
  { name: "HR-083 a hook without a demand is fine", jobs: [job("a", "1", { x: "" })], wrong: [] },
  { name: "HR-078 a job that takes part in no demand needs no version", jobs: [job("a", "", { x: "" })], wrong: [] },
  {
    name: "HR-071 T-106 a demand may name a job that sorts later",
    jobs: [job("b", "1", { x: "z.y" }), job("z", "1", { y: "" })],
    wrong: [],
  },
  {
    name: "HR-072 only the demanded job is ErrInvalidHookDemand",
    jobs: [job("a", "1", { x: "up." }), up("1")],
    wrong: ["ErrInvalidHookDemand a hooks/x/demands/hook"],
  },
  {
    name: "HR-073 only the demanded hook is ErrInvalidHookDemand",
    jobs: [job("a", "1", { x: ".check" }), up("1")],
    wrong: ["ErrInvalidHookDemand a hooks/x/demands/job"],
  },
  {
    name: "HR-074 an unknown job is ErrInvalidHookDemand",
    jobs: [job("a", "1", { x: "nope.check" })],
    wrong: ["ErrInvalidHookDemand a hooks/x/demands/job"],
  },
  {
    name: "HR-075 an unknown hook is ErrInvalidHookDemand",
    jobs: [job("a", "1", { x: "up.nope" }), up("1")],
    wrong: ["ErrInvalidHookDemand a hooks/x/demands/hook"],
  },
  {
    name: "HR-084 T-30 a job that demands itself is ErrInvalidHookDemand",
    jobs: [job("a", "1", { x: "a.y", y: "" })],
    wrong: ["ErrInvalidHookDemand a hooks/x/demands/job"],
  },
  {
    name: "HR-076 a demanded job without a version is ErrInvalidJobVersion",
    jobs: [job("a", "1", { x: "up.check" }), up("")],
    wrong: ["ErrInvalidJobVersion up version"],
  },
  {
    name: "HR-077 a demanding job without a version is ErrInvalidJobVersion",
    jobs: [job("a", "", { x: "up.check" }), up("1")],
    wrong: ["ErrInvalidJobVersion a version"],
  },
  {
    name: "a version that is none is ErrInvalidJobVersion, demand or not",
    jobs: [job("a", "1.2.3.4"), job("b", "unknown"), job("c", "1.0+build")],
    wrong: ["ErrInvalidJobVersion a version", "ErrInvalidJobVersion b version", "ErrInvalidJobVersion c version"],
  },
  {
    name: "bounds are not compared with a version that is none",
    jobs: [bounds({ min_version: "1" }), up("unknown")],
    wrong: ["ErrInvalidJobVersion up version"],
  },
  {
    name: "HR-079 a version below min_version is ErrHookDemandVersionMismatch",
    jobs: [bounds({ min_version: "1.1.0" }), up("1.0.0")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  {
    name: "HR-080 a version above max_version is ErrHookDemandVersionMismatch",
    jobs: [bounds({ max_version: "1.9.9" }), up("2.0.0")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  { name: "HR-081 bounds are inclusive", jobs: [bounds({ min_version: "v1.2", max_version: "1.2.0" }), up("1.2.0")], wrong: [] },
  {
    name: "HR-081 T-105 versions compare by number: 1.10.0 is above 1.9.0",
    jobs: [bounds({ max_version: "1.9.0" }), up("1.10.0")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  {
    name: "a prerelease comes before its release",
    jobs: [bounds({ min_version: "2.0.0" }), up("2.0.0-rc1")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  {
    name: "a bound may be a whole number, and null is none",
    jobs: [bounds({ min_version: 1, max_version: null }), up("1.5")],
    wrong: [],
  },
  {
    name: "a bound that is no version is ErrInvalidHookConfiguration",
    jobs: [bounds({ min_version: 1.5 }), job("two", "1", { w: ["up.check", { max_version: "x" }] }), up("1")],
    wrong: [
      "ErrInvalidHookConfiguration down hooks/wait/demands/config",
      "ErrInvalidHookConfiguration two hooks/w/demands/config",
    ],
  },
  {
    name: "min_version above max_version is ErrInvalidHookConfiguration",
    jobs: [bounds({ min_version: "2", max_version: "1" }), up("1")],
    wrong: ["ErrInvalidHookConfiguration down hooks/wait/demands/config"],
  },
  { name: "other keys of the config are not judged", jobs: [bounds({ min_version: "1", topics: ["a"] }), up("1")], wrong: [] },
  {
    name: "HR-068 each hook has a demand of its own, and every wrong one is reported",
    jobs: [job("a", "1", { x: "up.check", y: "nope.z", z: "up.nope" }), up("1")],
    wrong: ["ErrInvalidHookDemand a hooks/y/demands/job", "ErrInvalidHookDemand a hooks/z/demands/hook"],
  },
  { name: "HR-341 after needs no version and no hook", jobs: [after("a", "z"), after("z")], wrong: [] },
  {
    name: "HR-342 after names a job that is not there, or the job itself: ErrInvalidHookDemand",
    jobs: [after("a", "z", "nope", "a"), after("z")],
    wrong: ["ErrInvalidHookDemand a after/1", "ErrInvalidHookDemand a after/2"],
  },
];

for (const { name, jobs, wrong } of CASES)
  test(name, () => {
    assert.deepEqual(codes(jobs), wrong);
  });

test("what is wrong with the bounds of a demand is told with the bound", () => {
  const message = (config: object) => checkDemands([bounds(config as never), up("1.0.0")])[0]?.message;
  assert.equal(message({ min_version: 1.5 }), "min_version must be a version in quotes or a whole number");
  assert.match(message({ max_version: "x" }) ?? "", /^max_version: .*x/);
  assert.equal(message({ min_version: "2", max_version: "1" }), "min_version 2 is above max_version 1");
  assert.equal(message({ min_version: "1.0.1" }), "job up has version 1.0.0, below min_version 1.0.1");
  assert.equal(message({ max_version: "0.9" }), "job up has version 1.0.0, above max_version 0.9");
});

test("HR-072 HR-073 HR-342 what is wrong with a demand or with after is told in a sentence", () => {
  const jobs = [
    job("a", "1", { x: "up.", y: ".check", z: "nope.check", v: "up.nope", w: "a.x" }),
    { ...up("1"), after: ["nope", "up"] },
  ];
  assert.deepEqual(
    checkDemands(jobs).map(({ message }) => message),
    [
      "is missing: job and hook belong together",
      "is missing: job and hook belong together",
      'there is no job "nope"',
      'job up has no hook "nope"',
      "a job cannot demand itself",
      'there is no job "nope"',
      "a job cannot come after itself",
    ],
  );
});

test("a demand on a job that could not be read is not judged twice", () => {
  const jobs = [job("a", "1", { x: "up.check" }), after("b", "up")];
  assert.deepEqual(codes(jobs, ["up"]), []);
  assert.equal(codes(jobs).length, 2);
});

test("HR-341 after makes edges beside those of demands", () => {
  const web = { ...job("web", "1", { y: "db.check" }), after: ["cache", "nope", "web"] };
  const found = demandGraph([web, job("db", "1", { check: "" }), after("cache")]);
  assert.deepEqual([...(found.get("web") ?? [])], ["db", "cache"]);
});

test("HR-089 the graph leads from the dependent to its upstream, without loops and unknown jobs", () => {
  const graph = demandGraph([
    job("b", "1", { x: "a.y", y: "a.z", self: "b.x", lost: "nope.x", free: "" }),
    job("a", "1", { y: "", z: "" }),
  ]);
  assert.deepEqual(
    [...graph].map(([name, upstreams]) => [name, [...upstreams]]),
    [
      ["b", ["a"]],
      ["a", []],
    ],
  );
});

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
