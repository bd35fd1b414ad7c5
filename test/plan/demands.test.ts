import assert from "node:assert/strict";
import { test } from "node:test";
import { checkDemands, type DemandJob, demandGraph } from "../../lib/plan/demands.ts";

/** A job whose hooks are given as `name`, `name -> job.hook`, or `name -> job.hook` with a config. */
function job(name: string, version: string, hooks: Record<string, string | [string, object]> = {}): DemandJob {
  return {
    name,
    version,
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
    name: "HR-079 a version below min_version is ErrHookDemandVersionMismatch",
    jobs: [bounds({ min_version: "1.1.0" }), up("1.0.0")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  {
    name: "HR-080 a version above max_version is ErrHookDemandVersionMismatch",
    jobs: [bounds({ max_version: "1.9.9" }), up("2.0.0")],
    wrong: ["ErrHookDemandVersionMismatch down hooks/wait/demands/config"],
  },
  {
    name: "HR-081 bounds are inclusive",
    jobs: [bounds({ min_version: "v1.2", max_version: "1.2.0" }), up("1.2.0")],
    wrong: [],
  },
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
  {
    name: "other keys of the config are not judged",
    jobs: [bounds({ min_version: "1", topics: ["a"] }), up("1")],
    wrong: [],
  },
  {
    name: "HR-068 each hook has a demand of its own, and every wrong one is reported",
    jobs: [job("a", "1", { x: "up.check", y: "nope.z", z: "up.nope" }), up("1")],
    wrong: ["ErrInvalidHookDemand a hooks/y/demands/job", "ErrInvalidHookDemand a hooks/z/demands/hook"],
  },
];

for (const { name, jobs, wrong } of CASES)
  test(name, () => {
    assert.deepEqual(codes(jobs), wrong);
  });

test("a demand on a job that could not be read is not judged twice", () => {
  const jobs = [job("a", "1", { x: "up.check" })];
  assert.deepEqual(codes(jobs, ["up"]), []);
  assert.equal(codes(jobs).length, 1);
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
