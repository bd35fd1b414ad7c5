import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../../lib/operation/build.ts";
import { seeded } from "../helpers/kill-rounds.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "../helpers/workspace.ts";

const JOBS = ["api", "web", "zoo"];
const HOSTS = ["10.0.0.1", "10.0.0.10", "10.0.0.2", "a", "b"];
const ROUNDS = 40;

/** Where each job is to run, in the order of deployment, and what a deploy noted of that: `<job>|<host>`. */
interface Model {
  placed: Map<string, string[]>;
  deployed: Set<string>;
}

for (const seed of [1, 2, 3])
  test(`after any changes the KV store tells each allocation its index and peers and nothing is left of others (seed ${seed})`, async (t) => {
    const random = seeded(seed);
    const bucket = await makeBucket(t);
    const model: Model = { placed: new Map(), deployed: new Set() };
    for (let round = 0; round < ROUNDS; round++) {
      if (round === 0 || random() < 0.3) changeWorkspace(bucket, model, random);
      if (random() < 0.5) noteDeploy(bucket, model, random);
      if (random() < 0.5) damage(bucket, model, random);
      await build(bucket.context(), {});
      assert.deepEqual(stored(bucket), wanted(model), `round ${round}`);
    }
  });

/** Other workers, other labels, another order of workers, other jobs, some disabled: what decides about allocations. */
function changeWorkspace({ dir }: TestBucket, model: Model, random: () => number): void {
  const some = (values: string[], share: number) => values.filter(() => random() < share);
  const workers = some(HOSTS, 0.7).map((host) => ({
    ...{ host, position: Math.floor(random() * 3), labels: some(JOBS, 0.7) },
  }));
  const jobs = some(JOBS, 0.8);
  const manifest = (job: string) => ({
    selectors: [job],
    ...(random() < 0.3 && { certs: { server: {} } }),
  });
  makeWorkspace(dir, {
    workers,
    jobs: Object.fromEntries(jobs.map((job) => [job, manifest(job)])),
    files: { "workspace/disabled.json": JSON.stringify({ workers: some(HOSTS, 0.2) }) },
  });
  workers.sort((a, b) => a.position - b.position || (a.host < b.host ? -1 : 1));
  const hostsOf = (job: string) =>
    workers.filter(({ labels }) => labels.includes(job)).map(({ host }) => host);
  model.placed = new Map(jobs.map((job) => [job, hostsOf(job)]));
  const present = new Set([...model.placed].flatMap(([job, hosts]) => hosts.map((host) => `${job}|${host}`)));
  for (const one of model.deployed) if (!present.has(one)) model.deployed.delete(one);
}

function noteDeploy({ kv }: TestBucket, { placed, deployed }: Model, random: () => number): void {
  const store = kv();
  for (const [job, hosts] of placed)
    for (const host of hosts) {
      if (random() < 0.5) continue;
      store.put(`ops/job/${job}/worker/${host}`, "version", "1.0");
      deployed.add(`${job}|${host}`);
    }
  store.flush();
}

/** What nothing of this program does: rows that went missing, other values, values that end, strangers. */
function damage({ db }: TestBucket, { placed }: Model, random: () => number): void {
  for (const [job, hosts] of placed) {
    const [host = "stranger"] = hosts.filter(() => random() < 0.5);
    const namespace = `ops/job/${job}/worker/${host}`;
    const key = random() < 0.5 ? "peer_workers" : `${job}_allocation_index`;
    const kind = random();
    const add = (value: string, list: string, ttl: number, deleted: number) =>
      db.run(
        `INSERT INTO kv_version SELECT namespace, key, MAX(version) + 1, ${value}, ${list}, ?, 2000000000, ?
         FROM kv_version WHERE namespace = ? AND key = ? HAVING MAX(version) > 0`,
        ...[ttl, deleted, namespace, key],
      );
    if (kind < 0.2) db.run("DELETE FROM kv_version WHERE namespace = ? AND key = ?", namespace, key);
    else if (kind < 0.4) add("'wrong'", "NULL", 0, 0);
    else if (kind < 0.6) add("''", "NULL", 0, 1);
    else if (kind < 0.8) add("value", "list", 1_000_000_000, 0);
    else
      db.run(
        `INSERT INTO kv_version SELECT ?1, 'version', coalesce(MAX(version), 0) + 1, '', NULL, 0, 2000000000, 0
         FROM kv_version WHERE namespace = ?1 AND key = 'version'`,
        `${namespace}x`,
      );
  }
}

function stored({ db, kv }: TestBucket): string[] {
  const names = db.all<{ namespace: string }>(
    "SELECT DISTINCT namespace FROM kv_version WHERE namespace GLOB 'ops/job/*/worker/*'",
  );
  const store = kv();
  return names
    .flatMap(({ namespace }) =>
      store
        .keys(namespace)
        .filter((key) => !key.startsWith("certs/"))
        .map((key) => `${namespace} ${key} ${store.get(namespace, key)} ${store.entry(namespace, key)?.ttl}`),
    )
    .sort();
}

function wanted({ placed, deployed }: Model): string[] {
  const entries = [...placed].flatMap(([job, hosts]) =>
    hosts.flatMap((host, index) => {
      const namespace = `ops/job/${job}/worker/${host}`;
      return [
        `${namespace} ${job}_allocation_index ${index} 0`,
        `${namespace} peer_workers ${hosts.filter((one) => one !== host).join(",")} 0`,
        ...(deployed.has(`${job}|${host}`) ? [`${namespace} version 1.0 0`] : []),
      ];
    }),
  );
  return entries.sort();
}
