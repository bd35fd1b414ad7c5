import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { DeployResult } from "../../lib/operation/deploy/deploy-result.ts";
import type { JobsSpec } from "../helpers/deploys.ts";
import { type CommandRun, SshDeploys } from "../helpers/ssh-deploys.ts";

/** What goes back from version 3 does so on two workers at the same time, or not at all. */
const TOGETHER = `@[ "$$CURRENT_VERSION to $$NEW_VERSION" != "3.0.0 to 2.0.0" ] || { touch ../../../back; n=0; \\
	until [ -f ../../../../127.0.0.3/back ] && [ -f ../../../../127.0.0.4/back ]; do \\
	n=$$((n + 1)); [ $$n -lt 300 ] || exit 1; sleep 0.1; done; }`;
/** A service that says in its log what it runs with, and is sick with a version that the file `sick` names. */
const MAKEFILE = `start restart:
	${TOGETHER}
	@mkdir -p data logs; echo "$@ $$NEW_VERSION" >> data/history; echo "runs $$NEW_VERSION" >> logs/web.log
status:
	@echo "status of $$(tail -n 1 logs/web.log)"
`;
const CHECK = {
  checks: [{ type: "ssh", command: '! grep -qs "^$(tail -n 1 jobs/web/logs/web.log)$" sick' }],
  wait: { attempts: 1, interval_seconds: 1 },
};

function jobs(version: string, manifest: Record<string, unknown> = {}): JobsSpec {
  return {
    web: {
      manifest: { version, max_concurrent_upgrades: 2, health_check: CHECK, ...manifest },
      files: { Makefile: MAKEFILE, "conf/a": `one\n${version}\n` },
    },
    db: { manifest: { version, max_concurrent_upgrades: 8 }, files: { Makefile: MAKEFILE, a: version } },
  };
}

const resultOf = ({ record }: CommandRun) => record.result as DeployResult;
const jobIn = (run: CommandRun, name: string) => resultOf(run).jobs.find(({ job }) => job === name);
const grades = (run: CommandRun, job = "web") => jobIn(run, job)?.allocations.map(({ outcome }) => outcome);
const each = <T>(...counted: [T, number][]) => counted.flatMap(([one, count]) => Array<T>(count).fill(one));

test("over ssh: a plan meets a host that went down and a file that was edited by hand; a retry goes on with what is left", async (t) => {
  // Of both batches the first worker can be taken down.
  const fleet = await SshDeploys.start(t, 4, [0, 2]);
  const { deploys, hosts } = fleet;
  const lastOn = () => hosts.map((host) => deploys.history("web", host).at(-1));
  const targets = () => hosts.map((host) => deploys.history("web", host).length);
  const loginsOf = async <T>(work: () => Promise<T>): Promise<[T, number]> => {
    const before = fleet.logins;
    return [await work(), fleet.logins - before];
  };
  await fleet.build(jobs("1.0.0"));
  const [first, logins] = await loginsOf(() => fleet.run("deploy"));
  assert.deepEqual([first.code, logins], [0, 4], first.output);

  // A host goes down between plan and deploy.
  await fleet.build(jobs("2.0.0"));
  const [plan, looked] = await loginsOf(() => fleet.run("deploy", "--dry-run"));
  assert.deepEqual([plan.code, looked], [0, 0], "over the connections that the deploy has opened");
  const bringBack = await fleet.takeDown();
  const met = await fleet.run("deploy", "--plan", plan.record.id.slice(-8));
  assert.equal(met.code, 1);
  assert.match(met.record.error ?? "", /web: job web failed on 1 worker: Cannot connect to worker 127\.0\.0\.1: nothing listens/);
  const inBatches = ["unreachable", "changed", "unreachable", "not_started"];
  assert.deepEqual(grades(met), inBatches);
  const inOne = ["unreachable", "changed", "unreachable", "changed"];
  assert.deepEqual(grades(met, "db"), inOne, "in one batch all others are changed");
  await bringBack();
  const again = await fleet.run("deploy", "--retry", met.record.id);
  assert.equal(again.code, 0, again.output);
  assert.deepEqual(lastOn(), each(["restart 2.0.0", 4]));
  assert.deepEqual(targets(), each([2, 4]), "nobody was touched twice");
  const nothing = await fleet.run("deploy", "--retry", again.record.id);
  assert.match(nothing.output, /nothing of it is left to be done/);

  // A file is edited by hand between plan and deploy.
  await fleet.build(jobs("3.0.0"));
  const stale = await fleet.run("deploy", "--dry-run");
  const edited = path.join(deploys.folder("127.0.0.3"), "jobs/web/conf/a");
  writeFileSync(edited, "one\nby hand\n");
  const refused = await fleet.run("deploy", "--plan", stale.record.id);
  assert.match(
    jobIn(refused, "web")?.reason ?? "",
    /^the plan does not hold any more, nothing was done: 127\.0\.0\.3: changed by hand: conf\/a$/,
  );
  assert.deepEqual(grades(refused), each(["not_started", 2], ["failed", 1], ["not_started", 1]));
  assert.deepEqual(targets(), each([2, 4]), "nothing was touched");
  assert.equal(readFileSync(edited, "utf8"), "one\nby hand\n");
  assert.equal(jobIn(refused, "db")?.outcome, "deployed", "a job that moved on no worker goes on");
  const informed = await fleet.run("deploy", "--dry-run");
  assert.match(informed.output, /changed conf\/a[\s\S]*-2\.0\.0\n *\+by hand/);
  const done = await fleet.run("deploy", "--plan", informed.record.id);
  assert.deepEqual([done.code, lastOn()], [0, each(["restart 3.0.0", 4])], done.output);
  const moved = await fleet.run("deploy", "--plan", informed.record.id);
  assert.match(moved.record.error ?? "", /does not hold any more: another deploy had work to do/);
  assert.deepEqual(targets(), each([3, 4]));

  // Within the tolerated share the rollout goes on; past it, it stops.
  const tolerate = (share: string) => ({ tolerate: { unreachable: share } });
  await fleet.build(jobs("4.0.0", tolerate("50%")));
  const backOnce = await fleet.takeDown();
  const within = await fleet.run("deploy", "--jobs", "web");
  assert.deepEqual([within.code, grades(within)], [0, inOne], within.output);
  await backOnce();
  const brought = await fleet.run("deploy", "--retry", within.record.id);
  assert.deepEqual([brought.code, lastOn()], [0, each(["restart 4.0.0", 4])], brought.output);
  assert.deepEqual(targets(), each([4, 4]));
  await fleet.build(jobs("5.0.0", tolerate("49%")));
  const backTwice = await fleet.takeDown();
  const past = await fleet.run("deploy", "--jobs", "web");
  assert.deepEqual([past.code, grades(past)], [1, inBatches], past.output);
  await backTwice();
  assert.deepEqual(targets(), [4, 5, 4, 4]);
});

test("over ssh: the gate of the second of four batches fails, with stop and with restore; a retry goes on there", async (t) => {
  const fleet = await SshDeploys.start(t, 8, [7]);
  const { deploys, hosts } = fleet;
  const third = deploys.folder("127.0.0.3");
  const lastOn = () => hosts.map((host) => deploys.history("web", host).at(-1));
  const targets = () => hosts.map((host) => deploys.history("web", host).length);
  const stateOf = (host: string) => {
    const { version, gate, unfinished } = deploys.promotion("web", host);
    return `${version} ${gate}${unfinished ? " unfinished" : ""}`;
  };
  await fleet.build(jobs("1.0.0"));
  assert.equal((await fleet.run("deploy", "--jobs", "web")).code, 0);

  await fleet.build(jobs("2.0.0"));
  const sick = path.join(third, "sick");
  writeFileSync(sick, "runs 2.0.0\nruns 3.0.0\n");
  const stopped = await fleet.run("deploy", "--jobs", "web");
  assert.equal(stopped.code, 1);
  assert.deepEqual(grades(stopped), each(["changed", 2], ["failed", 1], ["changed", 1], ["not_started", 4]));
  assert.deepEqual(hosts.slice(0, 4).map(stateOf), each(["2.0.0 passed", 2], ["2.0.0 failed", 2]));
  rmSync(sick);
  const healed = await fleet.run("deploy", "--retry", stopped.record.id);
  assert.equal(healed.code, 0, healed.output);
  assert.deepEqual([lastOn(), targets()], [each(["restart 2.0.0", 8]), each([2, 8])]);

  await fleet.build(jobs("3.0.0", { on_failure: "restore" }));
  writeFileSync(sick, "runs 3.0.0\n");
  const restored = await fleet.run("deploy", "--jobs", "web");
  assert.match(
    restored.record.error ?? "",
    /; what was promoted before was put back on 127\.0\.0\.3, 127\.0\.0\.4 and is healthy there; the promoted files are back on 4 workers where the rollout had not begun$/,
  );
  assert.deepEqual(grades(restored), each(["changed", 2], ["failed", 2], ["not_started", 4]));
  const { evidence } = jobIn(restored, "web")?.allocations[2] ?? {};
  assert.deepEqual(evidence?.status?.lines, ["status of runs 3.0.0"], "found before anything was put back");
  assert.equal(evidence?.logs[0]?.lines.at(-1), "runs 3.0.0");
  assert.deepEqual(hosts.slice(0, 4).map(stateOf), each(["3.0.0 passed", 2], ["2.0.0 passed", 2]));
  assert.equal(readFileSync(path.join(third, "jobs/web/conf/a"), "utf8"), "one\n2.0.0\n");
  assert.deepEqual(targets(), each([3, 2], [4, 2], [2, 4]), "the batch only, and nothing after it");
  rmSync(sick);
  const rest = await fleet.run("deploy", "--retry", restored.record.id);
  assert.equal(rest.code, 0, rest.output);
  assert.deepEqual([lastOn(), targets()], [each(["restart 3.0.0", 8]), each([3, 2], [5, 2], [3, 4])]);
});

test("over ssh: drift tells in sync, changed by hand, missing and unreachable, over the connections that the deploy has opened", async (t) => {
  const fleet = await SshDeploys.start(t, 4, [3]);
  const { deploys } = fleet;
  await fleet.build(jobs("1.0.0"));
  assert.equal((await fleet.run("deploy")).code, 0);
  let before = fleet.logins;
  const same = await fleet.run("drift");
  assert.deepEqual([same.code, fleet.logins - before], [0, 0], same.output);
  const web = (host: string) => path.join(deploys.folder(host), "jobs/web");
  writeFileSync(path.join(web("127.0.0.1"), "conf/a"), "one\nby hand\n");
  writeFileSync(path.join(web("127.0.0.2"), "conf/extra"), "");
  rmSync(path.join(web("127.0.0.3"), "conf/a"));
  writeFileSync(path.join(web("127.0.0.3"), "logs/more.log"), "its own");
  const bringBack = await fleet.takeDown();
  before = fleet.logins;
  const found = await fleet.run("drift");
  assert.deepEqual([found.code, fleet.logins - before], [1, 0], "for cron");
  const { workers } = found.record.result as {
    workers: { outcome: string; allocations: { job: string; files: { path: string; state: string; diff: string | null }[] }[] }[];
  };
  assert.deepEqual(
    workers.map(({ outcome }) => outcome),
    ["drifted", "in_sync", "drifted", "unreachable"],
  );
  const files = workers.map(({ allocations }) => allocations.find(({ job }) => job === "web")?.files);
  assert.deepEqual(
    files.map((own) => own?.map(({ path, state, diff }) => [path, state, diff])),
    [[["conf/a", "changed", "@@ -1,2 +1,2 @@\n one\n-1.0.0\n+by hand\n"]], [], [["conf/a", "missing", null]], undefined],
  );
  assert.match(found.output, /web@127\.0\.0\.1: drifted\n *changed conf\/a\n/);
  await bringBack();
  assert.equal((await fleet.run("deploy", "--force")).code, 0);
  assert.equal((await fleet.run("drift")).code, 0, "a deploy that is forced puts right what was changed");
});
