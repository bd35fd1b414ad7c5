import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { DeployPlan } from "../../../lib/plan/deploy-plan.ts";
import { type Deployed, Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { EarlierAuthority } from "../../helpers/earlier.ts";

const [A, B] = HOSTS;
const CERTS = {
  server: { subject: { common_name: "web.example" }, pkcs8: true },
  peer: { subject: { common_name: "peer" }, one: true },
};
const JOBS: JobsSpec = {
  web: { manifest: { certs: CERTS }, files: { "sum.tpl": '{{ get "ops/worker" "certs/ca.crt" | len }}\n' } },
};

/** The earlier system has put job web with certificates of this authority on two workers. */
async function earlierDeploy(t: TestContext, { isImported }: { isImported: boolean }) {
  const deploys = await Deploys.make(t);
  const authority = new EarlierAuthority(t);
  if (isImported) {
    writeFileSync(deploys.bucket.layout.caCertificate, authority.certificate);
    writeFileSync(deploys.bucket.layout.caKey, authority.key);
  }
  await deploys.build(JOBS, { hosts: [A, B] });
  const peer = authority.issue("peer", `IP:${A},IP:${B}`);
  for (const host of [A, B]) {
    const folder = path.join(deploys.folder(host), "jobs", "web");
    mkdirSync(folder, { recursive: true });
    const { db } = deploys.bucket;
    const row = db.get<{ content: Uint8Array }>("SELECT content FROM job_files WHERE path = 'Makefile'");
    writeFileSync(path.join(folder, "Makefile"), row?.content ?? "");
    writeFileSync(path.join(folder, "sum"), `${deploys.bucket.kv().get("ops/worker", "certs/ca.crt")?.length}\n`);
    authority.put(folder, "server", authority.issue("web.example", `IP:${host}`));
    authority.put(folder, "peer", peer);
  }
  const folderOf = (host: string) => path.join(deploys.folder(host), "jobs", "web");
  return { deploys, authority, folderOf };
}

const plansOf = ({ result }: Deployed) =>
  (result as DeployPlan).waves.flatMap(({ jobs }) => jobs).flatMap((job) => job.allocations);
const rowsOf = (deploys: Deploys) => deploys.bucket.db.all("SELECT * FROM job_certs ORDER BY worker_ip, name");
const stored = (deploys: Deploys, host: string, file: string) =>
  deploys.bucket.kv().get(`ops/job/web/worker/${host}`, `certs/${file}`);

test("HR-349 with the earlier authority its certificates are taken over, and neither a deploy nor a build makes others", async (t) => {
  const { deploys, folderOf } = await earlierDeploy(t, { isImported: true });
  const before = [rowsOf(deploys), stored(deploys, A, "server.crt"), deploys.bucket.db.all("SELECT * FROM kv_version")];
  const plan = await deploys.deploy({ adopt: true, dry_run: true });
  assert.deepEqual(
    plansOf(plan).map(({ action }) => action),
    ["adopt", "adopt"],
    plan.text,
  );
  const after = [rowsOf(deploys), stored(deploys, A, "server.crt"), deploys.bucket.db.all("SELECT * FROM kv_version")];
  assert.deepEqual(after, before, "a plan takes nothing over");
  const adopted = await deploys.deploy({ adopt: true });
  assert.equal(adopted.error, undefined);
  assert.deepEqual(
    adopted.jobs[0]?.allocations.map(({ action }) => action),
    ["adopt", "adopt"],
  );
  for (const host of [A, B])
    for (const file of ["server.crt", "server.key", "peer.crt", "peer.key"])
      assert.equal(stored(deploys, host, file), readFileSync(path.join(folderOf(host), "certs", file), "utf8"), file);
  const kv = JSON.stringify(deploys.bucket.db.all("SELECT value FROM kv_version WHERE key LIKE '%.key'"));
  assert.doesNotMatch(kv, /PRIVATE KEY/, "the keys are sealed");
  assert.doesNotMatch(adopted.text + plan.text, /PRIVATE KEY/);
  const kept = rowsOf(deploys);
  await deploys.build(JOBS, { hosts: [A, B] });
  assert.deepEqual(rowsOf(deploys), kept, "a build keeps them as its own");
  const { jobs } = await deploys.deploy();
  assert.deepEqual(
    jobs.map(({ outcome }) => outcome),
    ["skipped"],
  );
});

test("HR-349 pairs are taken over also where another file keeps a job from being adopted", async (t) => {
  const { deploys, folderOf } = await earlierDeploy(t, { isImported: true });
  for (const host of [A, B]) writeFileSync(path.join(folderOf(host), "sum"), "other\n");
  await deploys.deploy({ adopt: true });
  assert.equal(stored(deploys, A, "server.crt"), readFileSync(path.join(folderOf(A), "certs", "server.crt"), "utf8"));
});

test("HR-349 a pair that cannot be stored ends the deploy, and nothing of it is kept", async (t) => {
  const { deploys } = await earlierDeploy(t, { isImported: true });
  const before = [rowsOf(deploys), stored(deploys, A, "server.crt")];
  deploys.bucket.db.run("CREATE TRIGGER full BEFORE INSERT ON job_certs BEGIN SELECT RAISE(ABORT, 'no room'); END");
  const end = await deploys.deploy({ adopt: true }).then(
    ({ error }) => error,
    (error: unknown) => error,
  );
  assert.match(String(end), /no room/);
  assert.deepEqual([rowsOf(deploys), stored(deploys, A, "server.crt")], before);
});

test("HR-348 without the earlier authority every certificate differs, and the plan says what to import first", async (t) => {
  const { deploys } = await earlierDeploy(t, { isImported: false });
  const plan = await deploys.deploy({ adopt: true, dry_run: true });
  const [one] = plansOf(plan);
  assert.equal(one?.action, "leave");
  const notes = new Map(one?.files.map(({ path: file, note }) => [file, note]));
  assert.deepEqual(
    [...notes.keys()],
    ["certs/ca.crt", "certs/peer.crt", "certs/peer.key", "certs/server.crt", "certs/server.key"],
  );
  assert.match(notes.get("certs/ca.crt") ?? "", /^import the authority of the earlier bucket first \(`ops ca import`\)/);
  assert.match(notes.get("certs/server.crt") ?? "", /not taken over: the bucket's authority has not signed it$/);
  assert.match(notes.get("certs/server.key") ?? "", /; a private key$/);
  assert.doesNotMatch(plan.text + JSON.stringify(plan.result), /PRIVATE KEY/);
});

test("HR-349 a certificate that ended, has not begun, is for others, or has no key of its own is not taken over; the others are", async (t) => {
  const { deploys, authority, folderOf } = await earlierDeploy(t, { isImported: true });
  const why = async () => {
    const plan = await deploys.deploy({ adopt: true, dry_run: true });
    const note = plansOf(plan)[1]?.files.find(({ path: file }) => file === "certs/server.crt")?.note;
    return note?.replace(/^.*: /, "");
  };
  authority.put(folderOf(B), "server", authority.issue("other.example", `IP:${B}`));
  assert.equal(await why(), "it is for other.example");
  authority.put(folderOf(B), "server", authority.issue("web.example", `IP:${A}`));
  assert.equal(await why(), `it is not for IP Address:${B}`);
  authority.put(folderOf(B), "server", { ...authority.issue("web.example", `IP:${B}`), key: authority.key });
  assert.equal(await why(), "the key there is not its own");
  rmSync(path.join(folderOf(B), "certs", "server.key"));
  assert.equal(await why(), "certificate or key there cannot be read");
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 40 * 86_400_000 });
  authority.put(folderOf(B), "server", authority.issue("web.example", `IP:${B}`));
  assert.match((await why()) ?? "", /^it ended on .*Z$/);
  t.mock.timers.reset();
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() - 2 * 86_400_000 });
  assert.match((await why()) ?? "", /^it begins on .*Z$/);
  t.mock.timers.reset();
  authority.put(folderOf(B), "server", { ...authority.issue("web.example", `IP:${B}`), key: authority.key });
  const { jobs, error } = await deploys.deploy({ adopt: true });
  assert.equal(error, undefined);
  assert.deepEqual(
    jobs[0]?.allocations.map(({ action }) => action),
    ["adopt", "leave"],
  );
  const peers = [A, B].map((host) => stored(deploys, host, "peer.crt"));
  assert.equal(peers[0], peers[1], "a certificate that all workers share stays one");
});
