import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { identify, type ProcessIdentity } from "../../../lib/core/process.ts";
import { updateSeqOf } from "../../../lib/operation/deploy/engine.ts";
import { type Deployed, Deploys, outcomes } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";
import { type FleetOptions, SshFleet, sshFolders } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const CONF = 'ssh_key = "fleet.key"\nuse_sudo = false\nssh_keep_seconds = 0\n';
const [A, B, C] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"] as const;

/** A bucket with the workers of a private sshd; each has its address as a label, too. */
async function setUp(t: TestContext, options: FleetOptions = {}) {
  const fleet = await SshFleet.start(t, { hosts: [A, B, C], ...options });
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const labels = (host: string) => [`w${host.at(-1)}`];
  const deploys = await Deploys.make(t, (host) => ({ connection: "ssh", ssh_user, ssh_port, labels: labels(host) }));
  const { bucket } = deploys;
  const key = path.join(bucket.dir, "secrets", "fleet.key");
  const { knownHosts } = bucket.layout;
  for (const file of [key, knownHosts]) mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
  const mend = () => {
    copyFileSync(fleet.sshd.clientKey, key);
    copyFileSync(fleet.knownHostsFile, knownHosts);
  };
  mend();
  const local = bucket.context;
  return {
    ...{ fleet, deploys, key, knownHosts, mend },
    /** The next runs are as those that a server starts, or not. */
    served(isServed: boolean): void {
      const server = isServed ? (identify(process.pid) as ProcessIdentity) : null;
      bucket.context = (kind, signal) => ({ ...local(kind, signal), server });
    },
  };
}

function steps({ result }: Deployed): string[] {
  return (result as { steps: { step: string }[] }).steps.map(({ step }) => step);
}

/** A PATH with what a session needs, tar and find, but neither make nor sha256sum. */
function poorPath(t: TestContext): string {
  const folder = temporaryFolder(t);
  for (const name of ["sh", "setsid", "mkdir", "ls", "id", "rm", "cat", "tar", "find"])
    writeFileSync(path.join(folder, name), `#!/bin/sh\nexec /usr/bin/${name} "$@"\n`, { mode: 0o755 });
  return folder;
}

test("where no worker is of use and only a person can change it, a deploy ends before anything is touched, in one sentence for each cause", async (t) => {
  const poor = poorPath(t);
  const isPoor = path.join(temporaryFolder(t), "poor");
  const login = `[ ! -e ${isPoor} ] || PATH=${poor}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"`;
  const { fleet, deploys, key, knownHosts, mend, served } = await setUp(t, { login });
  const { bucket } = deploys;
  const manifest = { ...hooksOf({ first: ["pre_deploy"] }), tolerate: { unreachable: "100%" } };
  const web = { manifest, files: { "_hooks/first.py": RECORD } };
  await deploys.build({ web }, { hosts: fleet.hosts, conf: CONF });

  const all = `workers 127.0.0.[1-3]`;
  const only = `-w ${fleet.hosts.join(",")}`;
  const stranger = fleet.strangersKey();
  const missing = "Cannot reach workers over ssh: there is no private key secrets/fleet.key; make one: `ops ssh-key create`";
  const unknown = `Cannot connect to ${all}: the host key is not known; check and record it: \`ops worker trust ${only}\``;
  const changed = "another host key is shown there than the one that is trusted; if that is right, trust the new one:";
  const refused = `Cannot sign in on ${all} as ${fleet.sshd.user}: the key secrets/fleet.key is not accepted there; put its public part (\`ops ssh-key show\`) into that user's authorized_keys, or store the right key: \`ops ssh-key set\``;
  const unusable = new RegExp(
    `^Cannot sign in on ${all.replaceAll(/[.[\]]/g, "\\$&")}: ssh cannot use the private key .*: \`ops ssh-key set\`$`,
  );
  const trusting = (file: string) =>
    fleet.hosts.map((host) => `[${host}]:${fleet.sshd.port} ${readFileSync(`${file}.pub`, "utf8")}`).join("");
  const cases: [cause: () => void, sentence: string | RegExp, inConsole: string | undefined, grade: string][] = [
    [() => rmSync(key), `${missing}, or store yours: \`ops ssh-key set\``, ", or Keys under Source in the console", "failed"],
    [() => copyFileSync(stranger, key), refused, ", or Keys under Source in the console", "unreachable"],
    [() => writeFileSync(key, "no key"), unusable, undefined, "unreachable"],
    [() => writeFileSync(knownHosts, ""), unknown, ", or Trust under Workers in the console", "unreachable"],
    [
      () => writeFileSync(knownHosts, trusting(stranger)),
      `Refused to connect to ${all}: ${changed} \`ops worker trust --force ${only}\``,
      ", or Trust by force under Workers in the console",
      "unreachable",
    ],
    [
      () => writeFileSync(isPoor, ""),
      `Cannot run jobs on ${all}: not installed there: make, sha256sum; on Debian: \`apt-get install make coreutils\``,
      undefined,
      "failed",
    ],
  ];
  for (const [cause, sentence, inConsole, grade] of cases) {
    cause();
    for (const suffix of inConsole === undefined ? [""] : ["", inConsole]) {
      served(suffix !== "");
      const run = await deploys.deploy();
      const [prefix, told] = (run.error?.message ?? "").split(/(?<=^no worker was touched: )/);
      assert.equal(prefix, "no worker was touched: ");
      if (typeof sentence === "string") assert.equal(told, sentence + suffix);
      else assert.match(told ?? "", sentence);
      assert.deepEqual(outcomes(run), { web: "failed" });
      assert.equal(run.jobs[0]?.reason, told);
      const grades = run.jobs[0]?.allocations.map(({ worker, outcome }) => [worker, outcome]);
      assert.deepEqual(
        grades,
        fleet.hosts.map((host) => [host, grade]),
      );
      assert.deepEqual(steps(run), ["reconcile", "preflight"]);
    }
    mend();
    const made = fleet.hosts.flatMap((host) => (existsSync(deploys.folder(host)) ? readdirSync(deploys.folder(host)) : []));
    assert.deepEqual([made, traces(bucket.dir), updateSeqOf(bucket)], [[], [], 0]);
  }

  rmSync(isPoor);
  served(false);
  const before = fleet.logins;
  const run = await deploys.deploy();
  assert.equal(run.error, undefined);
  assert.ok(steps(run).includes("preflight"));
  assert.equal(fleet.logins - before, 3, "the deploy goes on over the connections of the preflight");
  rmSync(key);
  const unchanged = await deploys.deploy();
  assert.equal(unchanged.error, undefined, "a deploy with nothing to do asks no worker and needs no key");
  assert.ok(!steps(unchanged).includes("preflight"));
});

test("where some workers are of use, each cause is told once with its workers, and the deploy goes on with the others", async (t) => {
  const { fleet, deploys, knownHosts } = await setUp(t);
  const on = (label: string) => ({ manifest: { selectors: [label] } });
  await deploys.build({ one: on("w1"), all: on("worker") }, { hosts: fleet.hosts, conf: CONF });
  writeFileSync(knownHosts, readFileSync(knownHosts, "utf8").split("\n")[0] as string);
  const run = await deploys.deploy();
  assert.deepEqual(outcomes(run), { all: "failed", one: "deployed" });
  assert.deepEqual(run.text.match(/warning: .*/g), [
    `warning: Cannot connect to workers 127.0.0.[2-3]: the host key is not known; check and record it: \`ops worker trust -w ${B},${C}\``,
  ]);
  const all = run.jobs.find(({ job }) => job === "all");
  assert.deepEqual(
    all?.allocations.map(({ outcome }) => outcome),
    ["changed", "unreachable", "unreachable"],
  );
  assert.equal(
    all?.reason.replace(/; check .*/, ""),
    "job all failed on 2 workers: Cannot connect to workers 127.0.0.[2-3]: the host key is not known",
  );
  const dry = await deploys.deploy({ dry_run: true, jobs: ["all"] });
  assert.match(
    dry.text,
    /warning: nothing could be done there now: Cannot connect to workers 127\.0\.0\.\[2-3\]: the host key is not known/,
  );
});

test("what reconcile is to stop comes after the preflight, and a hook that may find other work lets the deploy go on", async (t) => {
  const { fleet, deploys, knownHosts } = await setUp(t);
  const on = (label: string, more = {}) => ({ manifest: { selectors: [label], ...more } });
  const hooked = { ...on("w3", hooksOf({ first: ["pre_deploy"] })), files: { "_hooks/first.py": RECORD } };
  const hosts = fleet.hosts;
  await deploys.build({ one: on("w1"), two: on("w2"), hooked }, { hosts, conf: CONF });
  assert.equal((await deploys.deploy()).error, undefined);
  traces(deploys.bucket.dir);
  const changed = { ...on("w2"), files: { a: "2" } };
  await deploys.build({ one: on("w1"), two: changed, hooked }, { hosts, conf: CONF, disabled: { one: [A] } });
  writeFileSync(knownHosts, "");
  const run = await deploys.deploy();
  assert.deepEqual(steps(run).slice(0, 2), ["preflight", "reconcile"]);
  assert.match(run.text, /^warning: Cannot connect to workers 127\.0\.0\.\[1-2\]: the host key is not known/m);
  assert.deepEqual(
    run.reconciled.map(({ worker, outcome }) => [worker, outcome]),
    [[A, "unreachable"]],
  );
  assert.deepEqual(outcomes(run), { hooked: "skipped", one: "skipped", two: "failed" });
  assert.equal(traces(deploys.bucket.dir).length, 1);
  const only = await deploys.deploy({ jobs: ["one"] });
  assert.equal(only.reconciled[0]?.outcome, "unreachable", "what is only to be stopped is told by reconcile");
});

test("a worker that is down does not end a deploy; one of a later wave is asked again when its wave comes", async (t) => {
  const { fleet, deploys, knownHosts } = await setUp(t, { hosts: [A] });
  const other = await SshFleet.start(t, { hosts: [B], sshd: [`AuthorizedKeysFile ${fleet.sshd.clientKey}.pub`] });
  fleet.trustAlso(other);
  copyFileSync(fleet.knownHostsFile, knownHosts);
  const isUp = path.join(temporaryFolder(t), "up");
  const Makefile = `start:\n\t@for i in $$(seq 300); do [ -e ${isUp} ] && exit 0; sleep 0.1; done; exit 1\n`;
  const jobs = {
    early: { manifest: { selectors: ["w1"] }, files: { Makefile } },
    late: { manifest: { selectors: ["w2"] }, demands: "early" },
  };
  await deploys.build(jobs, { hosts: [A, B], conf: CONF });
  deploys.bucket.db.run("UPDATE worker SET ssh_port = ? WHERE worker_ip = ?", other.sshd.port, B);
  await other.sshd.stop();
  const alone = await deploys.deploy({ jobs: ["late"] });
  assert.match(alone.error?.message ?? "", /^the deploy is not complete: late: .*nothing listens on port/);
  assert.equal(alone.jobs[0]?.allocations[0]?.outcome, "unreachable");

  const running = deploys.deploy();
  await until("the first wave runs", () => deploys.bucket.activity.some((line) => line.includes("early: batch 1 of 1")));
  await other.sshd.run();
  writeFileSync(isUp, "");
  const run = await running;
  assert.match(run.text, /warning: Cannot connect to worker 127\.0\.0\.2: nothing listens on port/);
  assert.deepEqual(outcomes(run), { early: "deployed", late: "deployed" });
});

test("a cancel ends a preflight whose workers give no answer", async (t) => {
  const { fleet, deploys } = await setUp(t);
  await deploys.build({ web: {} }, { hosts: fleet.hosts, conf: CONF });
  fleet.freezeListener();
  const stop = new AbortController();
  const running = deploys.deploy({}, stop.signal);
  await until("the workers are asked", () => sshFolders(deploys.bucket.dir).length > 0);
  stop.abort();
  const run = await running;
  assert.equal(run.error?.code, "cancelled");
  assert.deepEqual([outcomes(run), steps(run).at(-1)], [{ web: "not_started" }, "preflight"]);
});
