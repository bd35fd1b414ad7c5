import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { Deploys } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";

const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
/** The second version is sick where a file `sick` lies beside jobs/. */
const CHECK = { type: "ssh", command: "! { [ -f sick ] && grep -q two jobs/web/a; }" };
const manifest = (onFailure: string, version: string) => ({
  version,
  on_failure: onFailure,
  max_concurrent_upgrades: 1,
  health_check: { checks: [CHECK], wait: { attempts: 1, interval_seconds: 1 } },
});

test("a failed gate in the second of four batches: restore puts back what was there before, on that batch only", async (t) => {
  const deploys = await Deploys.make(t);
  const build = (version: string, a: string) =>
    deploys.build({ web: { manifest: manifest("restore", version), files: { a } } }, { hosts: HOSTS });
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  const before = HOSTS.map((host) => deploys.promotion("web", host).hash);
  await build("2.0.0", "two");
  const [first, second] = HOSTS as [string, string];
  writeFileSync(path.join(deploys.folder(second), "sick"), "");
  const restoring = new Set<string>();
  deploys.onProgress = ({ rollouts: [one] }) => {
    for (const { worker, state } of one?.hosts ?? []) if (state === "restoring") restoring.add(worker);
  };
  const run = await deploys.deploy();
  assert.deepEqual([...restoring], HOSTS.slice(1), "progress tells where something is put back");
  assert.match(
    run.error?.message ?? "",
    /; what was promoted before was put back on 127\.0\.0\.2 and is healthy there; the promoted files are back on 2 workers where the rollout had not begun$/,
  );
  assert.match(run.text, /web: puts the previously promoted files back on 127\.0\.0\.2\n/);
  assert.match(run.text, /web: puts the promoted files back on 127\.0\.0\.3, 127\.0\.0\.4, where the rollout had not begun\n/);
  const [job] = run.jobs;
  assert.deepEqual(
    job?.allocations.map(({ outcome }) => outcome),
    ["changed", "failed", "not_started", "not_started"],
  );
  const evidence = job?.allocations[1] as { evidence?: { logs: unknown[] } } | undefined;
  assert.ok(evidence?.evidence, "found before anything was put back");
  const stateOf = (host: string) => {
    const { version, gate, unfinished, hash } = deploys.promotion("web", host);
    return [version, gate, unfinished, before.includes(hash)];
  };
  assert.deepEqual(stateOf(first), ["2.0.0", "passed", false, false]);
  assert.deepEqual(stateOf(second), ["1.0.0", "passed", false, true]);
  const contentOn = (host: string) => readFileSync(path.join(deploys.folder(host), "jobs/web/a"), "utf8");
  assert.deepEqual(HOSTS.map(contentOn), ["two", "one", "one", "one"]);
  for (const host of HOSTS.slice(2)) {
    assert.deepEqual(stateOf(host), ["1.0.0", "passed", false, true], "as if the rollout had never been");
    assert.deepEqual(deploys.history("web", host), ["start 1.0.0"], "nothing is restarted there");
  }
  assert.deepEqual(deploys.history("web", second), ["start 1.0.0", "restart 2.0.0", "restart 1.0.0"]);
  assert.deepEqual(deploys.history("web", first), ["start 1.0.0", "restart 2.0.0"]);
});

test("what is put back and is not healthy either says so; its gate stays failed, and the next deploy tries the new files", async (t) => {
  const deploys = await Deploys.make(t);
  const [host] = HOSTS as [string];
  const build = (version: string, a: string) => {
    const check = { checks: [{ type: "ssh", command: "! [ -f sick ]" }], wait: { attempts: 1 } };
    const web = { manifest: { ...manifest("restore", version), health_check: check }, files: { a } };
    return deploys.build({ web }, { hosts: [host] });
  };
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0", "two");
  const sick = path.join(deploys.folder(host), "sick");
  writeFileSync(sick, "");
  assert.match(
    (await deploys.deploy()).error?.message ?? "",
    /; what was promoted before was put back on 127\.0\.0\.1, but is not healthy there: the health check of job web/,
  );
  const { version, gate } = deploys.promotion("web", host);
  assert.deepEqual([version, gate], ["1.0.0", "failed"]);
  rmSync(sick);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.history("web", host), ["start 1.0.0", ...["2", "1", "2"].map((v) => `restart ${v}.0.0`)]);
});

test("a cancel while a batch is checked puts nothing back", async (t) => {
  const deploys = await Deploys.make(t);
  const [host] = HOSTS as [string];
  const build = (version: string, a: string) => {
    const check = { checks: [CHECK], wait: { attempts: 1_000, interval_seconds: 1 } };
    const web = { manifest: { ...manifest("restore", version), health_check: check }, files: { a } };
    return deploys.build({ web }, { hosts: [host] });
  };
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0", "two");
  writeFileSync(path.join(deploys.folder(host), "sick"), "");
  const cancel = new AbortController();
  deploys.onProgress = ({ rollouts: [one] }) => {
    if (one?.hosts.some(({ state }) => state === "checking")) cancel.abort();
  };
  const run = await deploys.deploy({}, cancel.signal);
  assert.equal(run.error?.code, "cancelled");
  assert.doesNotMatch(run.text, /files back on/);
  assert.deepEqual(deploys.history("web", host), ["start 1.0.0", "restart 2.0.0"]);
  assert.equal(readFileSync(path.join(deploys.folder(host), "jobs/web/a"), "utf8"), "two");
});

test("first starts have nothing before them, and stay; with stop nothing is put back", async (t) => {
  for (const [onFailure, message] of [
    ["restore", /nothing was promoted there before/],
    ["stop", /health check of job web failed/],
  ] as const) {
    const deploys = await Deploys.make(t);
    const [host] = HOSTS as [string];
    await deploys.build({ web: { manifest: manifest(onFailure, "1.0.0"), files: { a: "two" } } }, { hosts: [host] });
    deploys.fail("web", "none", host);
    writeFileSync(path.join(deploys.folder(host), "sick"), "");
    const run = await deploys.deploy();
    assert.match(run.error?.message ?? "", message);
    assert.deepEqual(deploys.targets("web", host), ["start"]);
    assert.equal(deploys.promotion("web", host).gate, "failed");
  }
});

test("restore of a job whose hooks do what targets do: they are run again, for the batch at once and with the version that comes back", async (t) => {
  const deploys = await Deploys.make(t);
  const build = (version: string, a: string) => {
    const hooks = { ...manifest("restore", version), max_concurrent_upgrades: 2, ...hooksOf({ act: ["job_control"] }) };
    return deploys.build({ web: { manifest: hooks, files: { a, "_hooks/act.py": RECORD } } }, { hosts: HOSTS });
  };
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  const { dir } = deploys.bucket;
  traces(dir);
  await build("2.0.0", "two");
  const [first, second, third] = HOSTS as [string, string, string];
  writeFileSync(path.join(deploys.folder(third), "sick"), "");
  const run = await deploys.deploy();
  assert.match(run.error?.message ?? "", /put back on 127\.0\.0\.3, 127\.0\.0\.4 and is healthy there$/);
  const told = traces(dir).map((one) =>
    [one.ALLOCATION_IP, one.NEW_VERSION, one.BATCH_ALLOCATIONS, one.UPDATED_ALLOCATIONS].join(" "),
  );
  const [early, late] = [HOSTS.slice(0, 2).join(","), HOSTS.slice(2).join(",")];
  const all = HOSTS.join(",");
  assert.deepEqual(
    told.sort(),
    [
      `${first} 2.0.0 ${early} ${all}`,
      `${second} 2.0.0 ${early} ${all}`,
      ...HOSTS.slice(2).flatMap((host) => [`${host} 1.0.0 ${late} ${late}`, `${host} 2.0.0 ${late} ${all}`]),
    ].sort(),
  );
  assert.deepEqual(
    HOSTS.map((host) => [deploys.promotion("web", host).version, deploys.promotion("web", host).gate]),
    [
      ["2.0.0", "passed"],
      ["2.0.0", "passed"],
      ["1.0.0", "passed"],
      ["1.0.0", "passed"],
    ],
  );
  assert.deepEqual(
    HOSTS.flatMap((host) => deploys.targets("web", host)),
    [],
    "no target is run where hooks do it",
  );
});

test("HR-318 what hooks for job_control write is stored though they fail while a batch is put back", async (t) => {
  const deploys = await Deploys.make(t);
  const [host] = HOSTS as [string];
  const act = `import os, ops
ops.put_job_variable("last", os.environ["NEW_VERSION"]).raise_for_status()
if os.environ["CURRENT_VERSION"] != "0.0.0" and os.environ["NEW_VERSION"] == "1.0.0": raise SystemExit("told to fail")
`;
  const build = (version: string, a: string) => {
    const hooks = { ...manifest("restore", version), ...hooksOf({ act: ["job_control"] }) };
    return deploys.build({ web: { manifest: hooks, files: { a, "_hooks/act.py": act } } }, { hosts: [host] });
  };
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0", "two");
  writeFileSync(path.join(deploys.folder(host), "sick"), "");
  assert.match((await deploys.deploy()).error?.message ?? "", /could not be put back on 127\.0\.0\.1: .*told to fail/);
  assert.equal(deploys.bucket.kv().get("vars/job/web", "last"), "1.0.0");
});

test("a batch whose promotion cannot be put back keeps the version that the database has", async (t) => {
  const deploys = await Deploys.make(t);
  const hosts = HOSTS.slice(0, 2);
  const build = (version: string, a: string) =>
    deploys.build(
      { web: { manifest: { ...manifest("restore", version), max_concurrent_upgrades: 2 }, files: { a } } },
      { hosts },
    );
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0", "two");
  for (const host of hosts) writeFileSync(path.join(deploys.folder(host), "sick"), "");
  const { bucket } = deploys;
  const last = catalogAllocations(bucket.db).find(({ worker }) => worker === hosts[1])?.id;
  bucket.db.run(
    `CREATE TRIGGER full BEFORE UPDATE OF current_version ON hash WHEN NEW.current_version = '1.0.0' AND OLD.key = '${last}'
     BEGIN SELECT RAISE(ABORT, 'no room'); END`,
  );
  const make = bucket.context.bind(bucket);
  const made: ReturnType<typeof make>[] = [];
  bucket.context = (...given) => {
    const context = make(...given);
    made.push(context);
    return context;
  };
  assert.match((await deploys.deploy()).error?.message ?? "", /could not be put back on 127\.0\.0\.1, 127\.0\.0\.2: .*no room/);
  const known = hosts.map((host) => made[0]?.kv.get(`ops/job/web/worker/${host}`, "version"));
  const promoted = hosts.map((host) => deploys.promotion("web", host).version);
  assert.deepEqual([known, promoted], [promoted, ["2.0.0", "2.0.0"]]);
});
