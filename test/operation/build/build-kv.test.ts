import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../../../lib/operation/build/build.ts";
import { SEED, seeded } from "../../helpers/random.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "../../helpers/workspace.ts";

const JOBS = ["api", "web", "zoo"];
const HOSTS = ["10.0.0.1", "10.0.0.10", "10.0.0.2", "a", "b"];
const ROUNDS = 40;

/** The workspace, and what a deploy noted: `<job>|<host>`. */
interface Model {
  workers: { host: string; position: number; labels: string[] }[];
  jobs: Set<string>;
  withCerts: Set<string>;
  disabled: Set<string>;
  deployed: Set<string>;
}

for (const series of [1, 2, 3])
  test(`after any changes the KV store tells each allocation its index and peers and nothing is left of others (series ${series})`, async (t) => {
    const random = seeded(SEED + series);
    const bucket = await makeBucket(t);
    const workers = HOSTS.map((host) => ({ host, position: 0, labels: [...JOBS] }));
    const model: Model = { workers, jobs: new Set(JOBS), withCerts: new Set(["web"]), disabled: new Set(), deployed: new Set() };
    for (let round = 0; round < ROUNDS; round++) {
      for (let changes = Math.floor(random() * 3); changes > 0; changes--) change(model, random);
      writeWorkspace(bucket, model);
      await build(bucket.context(), {});
      const present = new Set(placed(model).flatMap(([job, hosts]) => hosts.map((host) => `${job}|${host}`)));
      for (const one of model.deployed) if (!present.has(one)) model.deployed.delete(one);
      assert.deepEqual(stored(bucket), wanted(model), `round ${round}`);
      if (random() < 0.5) noteDeploy(bucket, model, random);
    }
  });

/** One small change of what decides about allocations, so that others stay as they are beside it. */
function change(model: Model, random: () => number): void {
  const one = <T>(values: readonly T[]) => values[Math.floor(random() * values.length)] as T;
  const toggle = (set: Set<string>, value: string) => set.delete(value) || set.add(value);
  const [host, job] = [one(HOSTS), one(JOBS)];
  const worker = model.workers.find((known) => known.host === host);
  const kind = Math.floor(random() * 6);
  if (kind === 0) toggle(model.jobs, job);
  else if (kind === 1) toggle(model.withCerts, job);
  else if (kind === 2) toggle(model.disabled, host);
  else if (!worker) model.workers.push({ host, position: 0, labels: [job] });
  else if (kind === 3) worker.position = Math.floor(random() * 3);
  else if (kind === 4) model.workers.splice(model.workers.indexOf(worker), 1);
  else {
    const labels = new Set(worker.labels);
    toggle(labels, job);
    worker.labels = [...labels];
  }
}

function writeWorkspace({ dir }: TestBucket, { workers, jobs, withCerts, disabled }: Model): void {
  const manifest = (job: string) => ({ selectors: [job], ...(withCerts.has(job) && { certs: { server: {} } }) });
  makeWorkspace(dir, {
    workers,
    jobs: Object.fromEntries([...jobs].map((job) => [job, manifest(job)])),
    files: { "workspace/disabled.json": JSON.stringify({ workers: [...disabled] }) },
  });
}

/** The jobs with their hosts in the order of deployment. */
function placed({ workers, jobs }: Model): [job: string, hosts: string[]][] {
  const inOrder = workers.toSorted((a, b) => a.position - b.position || (a.host < b.host ? -1 : 1));
  return [...jobs].map((job) => [job, inOrder.filter(({ labels }) => labels.includes(job)).map(({ host }) => host)]);
}

function noteDeploy({ kv }: TestBucket, model: Model, random: () => number): void {
  const store = kv();
  for (const [job, hosts] of placed(model))
    for (const host of hosts) {
      if (random() < 0.5) continue;
      store.put(`ops/job/${job}/worker/${host}`, "version", "1.0");
      model.deployed.add(`${job}|${host}`);
    }
  store.flush();
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

function wanted(model: Model): string[] {
  const entries = placed(model).flatMap(([job, hosts]) =>
    hosts.flatMap((host, index) => {
      const namespace = `ops/job/${job}/worker/${host}`;
      return [
        `${namespace} ${job}_allocation_index ${index} 0`,
        `${namespace} peer_workers ${hosts.filter((one) => one !== host).join(",")} 0`,
        ...(model.deployed.has(`${job}|${host}`) ? [`${namespace} version 1.0 0`] : []),
      ];
    }),
  );
  return entries.sort();
}
