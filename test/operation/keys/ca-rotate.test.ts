import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openForReading } from "../../../lib/bucket/base/database.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { examineBucket } from "../../../lib/operation/tend/doctor-bucket.ts";
import { caKillRounds, Rotations } from "../../helpers/ca-rotations.ts";
import { SEED } from "../../helpers/random.ts";

/** How the doctor sees the rotation. */
async function finding({ layout }: Rotations): Promise<string> {
  using db = openForReading(layout.database);
  const found = await examineBucket(
    { layout, launcher: new Launcher(process.env), signal: new AbortController().signal },
    [],
    db,
  );
  return found.filter(({ check }) => check === "key change").map(({ message, advice }) => `${message}: ${advice}`)[0] ?? "";
}

/** Of which CA each certificate is: that of the CA itself, and those of the job. */
async function authorities(it: Rotations): Promise<(string | undefined)[]> {
  const { stdout } = await it.ops("cat", "certs", "--json");
  return (JSON.parse(stdout) as { authority?: string }[]).map(({ authority }) => authority);
}

test("CP-277 CP-562 CP-563 CP-568 a rotation of the CA takes three steps with a deploy after each, and at every moment every job trusts every other", async (t) => {
  const it = await Rotations.start(t);
  const old = new X509Certificate(it.file("127.0.0.1", "ca.crt")).serialNumber;
  const serials = () => ["127.0.0.1", "127.0.0.2"].map((host) => new X509Certificate(it.file(host, "server.crt")).serialNumber);
  const issued = serials();
  const rotate = async (...args: string[]) => {
    const { code, stdout, stderr } = await it.ops("ca", "rotate", ...args);
    return { code, said: stdout + stderr };
  };
  const plan = await rotate("--dry-run");
  assert.match(plan.said, /begin: make the next CA, .* \(next\)\nissue: .* \(later\)\ndrop: .* \(later\)\n/);
  assert.equal(await it.phase(), "none");
  assert.equal(await finding(it), "");

  assert.match(
    (await rotate()).said,
    /done: make the next CA.*next: build and deploy \(`ops deploy --build`\), then `ops ca rotate`/,
  );
  assert.equal(await it.phase(), "trust");
  const early = await rotate();
  assert.equal(early.code, 1);
  assert.match(early.said, /Cannot let the next CA sign: .*: no build knows the present ca.crt; build and deploy/);
  assert.equal((await it.ops("build")).code, 0);
  const undeployed = await rotate();
  assert.match(
    undeployed.said,
    /2 of 2 running allocations are not deployed with the present ca.crt: web@127.0.0.1, web@127.0.0.2/,
  );
  assert.match(
    await finding(it),
    /^the next CA does not sign yet: 2 of 2 running allocations are not deployed .*, since 2.*Z: go on with `ops deploy --build`$/,
  );
  assert.deepEqual(serials(), issued);
  it.checkTrust();
  assert.deepEqual(await authorities(it), ["old", "old", "old"]);
  await it.deploy();
  it.checkTrust();
  assert.deepEqual(serials(), issued, "no certificate is renewed before all trust the next CA");

  assert.equal((await rotate()).code, 0);
  assert.equal(await it.phase(), "issue");
  assert.deepEqual(await authorities(it), ["old", "old", "old"], "the CA that the last build told to jobs, and theirs");
  assert.equal((await it.ops("build")).code, 0);
  assert.deepEqual(await authorities(it), ["new", "new", "new"]);
  it.checkTrust();
  const waits = await rotate("--dry-run");
  assert.match(
    waits.said,
    /begin: .* \(done\)\nissue: .* \(done\)\ndrop: .* \(waits: 2 of 2 running allocations are not deployed/,
  );
  await it.deploy();
  it.checkTrust();
  assert.ok(serials().every((serial) => !issued.includes(serial)));

  assert.equal((await rotate()).code, 0);
  assert.equal(await it.phase(), "none");
  assert.deepEqual(await authorities(it), [undefined, undefined, undefined]);
  await it.deploy();
  it.checkTrust();
  const [ca = "", ...others] = it
    .file("127.0.0.2", "ca.crt")
    .split(/(?<=END CERTIFICATE-----\n)/)
    .filter(Boolean);
  assert.deepEqual(others, []);
  assert.notEqual(new X509Certificate(ca).serialNumber, old);
  assert.equal(ca, readFileSync(it.layout.caCertificate, "utf8"));
});

test("CP-562 CP-568 a rotation and the status know a job whose first deploy has failed, too", async (t) => {
  const it = await Rotations.start(t);
  const folder = path.join(it.layout.jobs, "sick");
  mkdirSync(folder);
  writeFileSync(path.join(folder, "manifest.json"), JSON.stringify({ version: "1.0.0", selectors: ["worker"] }));
  writeFileSync(path.join(folder, "Makefile"), "start:\n\t@exit 3\n");
  assert.equal((await it.ops("deploy", "--build")).code, 1);
  const { code, stdout, stderr } = await it.ops("ca", "rotate");
  assert.equal(code, 0, stdout + stderr);
  assert.equal((await it.ops("build")).code, 0);
  const status = await it.ops("status");
  assert.equal(status.stderr, "");
  assert.match(status.stdout, /of 4 running allocations are not deployed with the present ca.crt: .*sick@127.0.0.1/);
});

test("CP-562 a step that could not be taken yet can be repeated, with its result", async (t) => {
  const it = await Rotations.start(t);
  const first = await it.ops("ca", "rotate", "--json");
  assert.deepEqual(JSON.parse(first.stdout), {
    step: "begin",
    taken: true,
    phase: "trust",
    waiting: [],
    next: "build and deploy (`ops deploy --build`), then `ops ca rotate`",
  });
  const failed = await it.ops("ca", "rotate", "--json");
  assert.equal(failed.code, 1);
  const { step, taken, phase, next } = JSON.parse(failed.stdout);
  assert.deepEqual(
    { step, taken, phase, next },
    { step: "issue", taken: false, phase: "trust", next: "build and deploy (`ops deploy --build`)" },
  );
  const list = JSON.parse((await it.ops("runs", "list", "--kind", "ca_rotate", "--json")).stdout);
  const run = path.basename(list.items?.[0]?.id ?? list[0]?.id);
  await it.deploy();
  const again = await it.ops("runs", "retry", run);
  assert.equal(again.code, 0, again.stdout + again.stderr);
  assert.equal(await it.phase(), "issue");
  assert.equal((await it.ops("runs", "retry", run)).code, 1, "its next step waits for a deploy again");
});

test("CP-564 rotations and deploys that are killed at 6 random moments leave jobs that trust each other, and go on", async (t) => {
  const { hits, rotated } = await caKillRounds(t, 6, SEED);
  t.diagnostic(`seed ${SEED}: ${hits} kills, ${rotated} rotations`);
});
