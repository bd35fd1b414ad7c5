import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { identify, signalProcess } from "../../lib/core/process.ts";
import { type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { Example } from "../../scripts/example.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { testRuntime } from "../helpers/hook-runtime.ts";
import { environmentOf, HookScripts } from "../helpers/hook-scripts.ts";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { until } from "../helpers/temporary.ts";

const launcher = new Launcher(process.env);

/** The example, deployed to three workers. */
class Redis {
  readonly #server: LocalServer;
  readonly #example: Example;
  readonly #bucket: string;

  private constructor(server: LocalServer, example: Example, bucket: string) {
    this.#server = server;
    this.#example = example;
    this.#bucket = bucket;
  }

  /** A bucket that holds the example, the key to its workers, and their host keys; nothing runs yet. */
  static async prepare(t: TestContext): Promise<Redis> {
    let cleanUp = async () => {};
    // What is registered first is done first: redis ends before its workers do.
    t.after(() => cleanUp());
    const fleet = await SshFleet.start(t);
    const { user, port, clientKey } = fleet.sshd;
    const worker = { connection: "ssh", ssh_user: user, ssh_port: port };
    const example = await Example.copy("redis", fleet.folder, 1, worker);
    const server = await LocalServer.start(path.join(fleet.folder, "root"));
    cleanUp = () => server.stop("SIGKILL");
    const bucket = await server.createBucket("redis");
    const redis = new Redis(server, example, bucket);
    cleanUp = async () => {
      await server.stop("SIGKILL");
      await redis.stop();
    };
    const key = { private_key: readFileSync(clientKey, "utf8") };
    assert.equal((await server.call("PUT", `/api/buckets/${bucket}/secrets/ssh_key`, key)).status, 200);
    await redis.push("1.0.0");
    assert.equal((await server.run(bucket, "workers/trust")).status, "succeeded");
    return redis;
  }

  get hosts(): string[] {
    return this.#example.workers.map((worker) => worker.host);
  }

  /** The job's folder on a worker. */
  folder(host: string): string {
    const worker = this.#example.workers.find((one) => one.host === host);
    return path.join(worker?.root ?? "", this.#bucket, "jobs", "redis");
  }

  async push(version: string): Promise<void> {
    const manifest = readFileSync(this.#source("manifest.json"), "utf8");
    writeFileSync(this.#source("manifest.json"), manifest.replace(/("version": ").*?"/, `$1${version}"`));
    const pushed = await this.#server.push(this.#bucket, this.#example.source);
    assert.equal(pushed.code, 0, pushed.stderr);
  }

  deploy(params: { force?: boolean } = {}): Promise<{ run: Run; text: string }> {
    return this.#run("deploy", params);
  }

  /** Runs a hook for all allocations; answers what its scripts printed, by worker. */
  async hook(hook: string): Promise<Record<string, string>> {
    const { text } = await this.#run("hooks", { hook, job: "redis" });
    const lines = (host: string) => [...text.matchAll(new RegExp(`^.*redis@${host} \\| (.*)$`, "gm"))];
    return Object.fromEntries(
      this.hosts.map((host) => [
        host,
        lines(host)
          .map((line) => `${line[1]}\n`)
          .join(""),
      ]),
    );
  }

  /** Carries out a run that succeeds and does not tell the password. */
  async #run(kind: string, params: object): Promise<{ run: Run; text: string }> {
    let text = "";
    const run = await this.#server.run(this.#bucket, kind, params, (part) => {
      text += part;
    });
    assert.equal(run.status, "succeeded", text);
    assert.ok(!text.includes(this.password));
    return { run, text };
  }

  /** The password that a hook made, as it lies on the workers. */
  get password(): string {
    return readFileSync(path.join(this.folder("127.0.0.1"), "password"), "utf8").trim();
  }

  /** Where the server keeps the bucket. */
  get bucketFolder(): string {
    return path.join(this.#example.source, "..", "root", this.#bucket);
  }

  /** What redis on a worker answers to a command. */
  async ask(host: string, ...command: string[]): Promise<string> {
    const argv = ["redis-cli", "-h", host, "-p", String(this.port), ...command] as const;
    const outcome = await launcher.run([...argv], { env: { REDISCLI_AUTH: this.password }, timeoutMs: patience(5_000) });
    return outcome.stdout.trim();
  }

  get port(): number {
    return Number(/^port (\d+)$/m.exec(readFileSync(path.join(this.folder("127.0.0.1"), "redis.conf"), "utf8"))?.[1]);
  }

  /** `INFO replication` of a worker. */
  async replication(host: string): Promise<Record<string, string>> {
    const lines = (await this.ask(host, "info", "replication")).split("\n").map((line) => line.trim());
    return Object.fromEntries(lines.map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 1)]));
  }

  /** Runs the service script on a worker by hand. */
  service(host: string, command: string): Promise<CommandOutcome> {
    return launcher.run(["sh", path.join(this.folder(host), "service"), command], { timeoutMs: patience(60_000) });
  }

  pid(host: string): number {
    return Number(readFileSync(path.join(this.folder(host), "data", "pid"), "utf8").split(" ")[0]);
  }

  /** Stops it on all workers, and kills what does not stop; answers a sentence for each failure. */
  async stop(): Promise<string[]> {
    const failures = await this.#example.stop(this.#bucket);
    for (const host of this.hosts) {
      const file = path.join(this.folder(host), "data", "pid");
      if (existsSync(file)) signalProcess(this.pid(host), "SIGKILL");
    }
    return failures;
  }

  #source(name: string): string {
    return path.join(this.#example.source, "workspace", "jobs", "redis", name);
  }
}

/** One primary, two replicas that follow it, and all of them know it. */
async function assertReplicates(redis: Redis): Promise<void> {
  const [primary = "", ...replicas] = redis.hosts;
  await until("both replicas are online", async () => {
    const found = Object.entries(await redis.replication(primary));
    const online = found.filter(([name, value]) => /^slave\d$/.test(name) && value.includes("state=online"));
    return online.length === replicas.length;
  });
  const info = await redis.replication(primary);
  assert.deepEqual([info.role, info.connected_slaves], ["master", "2"]);
  assert.deepEqual(
    [info.slave0, info.slave1].map((slave) => /^ip=([^,]+),port=(\d+),state=online,/.exec(slave ?? "")?.[1]).sort(),
    replicas,
  );
  for (const replica of replicas) {
    const { role, master_host, master_link_status } = await redis.replication(replica);
    assert.deepEqual([role, master_host, master_link_status], ["slave", primary, "up"], replica);
  }
}

async function assertHas(redis: Redis, key: string, value: string): Promise<void> {
  for (const host of redis.hosts) await until(`${key} is on ${host}`, async () => (await redis.ask(host, "get", key)) === value);
}

/** What Activity says of batches and gates, in its order. */
function steps(text: string): string[] {
  return [...text.matchAll(/(batch \d of \d \(\w+\): .*|health check passed on .*)/g)].map(([step]) => step);
}

test("HR-043 HR-046 examples/redis: a primary and two replicas, deployed, upgraded one by one, and repaired, over ssh", async (t) => {
  const redis = await Redis.prepare(t);
  const [primary = "", second = "", third = ""] = redis.hosts;

  await t.test("the first deploy starts the primary, then each replica behind a gate", async () => {
    const { text } = await redis.deploy();
    assert.deepEqual(
      steps(text),
      redis.hosts.flatMap((host, index) => [`batch ${index + 1} of 3 (new): start on ${host}`, `health check passed on ${host}`]),
    );
    await assertReplicates(redis);
    assert.deepEqual(hooksSaid(text), [
      `${primary} made the password`,
      `${primary} is the primary`,
      ...[second, third].map((host) => `${host} follows ${primary}`),
    ]);
  });

  await t.test("what the primary stores reaches the replicas, which take no writes", async () => {
    assert.equal(await redis.ask(primary, "set", "greeting", "hello"), "OK");
    await assertHas(redis, "greeting", "hello");
    assert.match(await redis.ask(second, "set", "greeting", "bye"), /^READONLY/);
  });

  await t.test("the password is needed, is on no command line, and only the service's user may read it", () => {
    for (const host of redis.hosts) {
      const text = readFileSync(`/proc/${redis.pid(host)}/cmdline`, "latin1");
      assert.ok(text.startsWith("redis-server") && !text.includes(redis.password), text);
      for (const name of ["redis.conf", "password"])
        assert.equal(statSync(path.join(redis.folder(host), name)).mode & 0o777, 0o600, name);
      for (const name of ["data", "logs"]) assert.equal(statSync(path.join(redis.folder(host), name)).mode & 0o777, 0o700, name);
    }
  });

  await t.test("T-100 the server keeps the password in its database only, sealed, and in no log", () => {
    assert.equal(redis.password.length, 43);
    for (const folder of ["data", "logs"])
      for (const file of filesIn(path.join(redis.bucketFolder, folder)))
        assert.ok(!readFileSync(file, "latin1").includes(redis.password), file);
  });

  await t.test("an upgrade restarts one worker after the other, and the data stays", async () => {
    const before = redis.hosts.map((host) => redis.pid(host));
    await redis.push("1.1.0");
    const { text } = await redis.deploy();
    assert.deepEqual(
      steps(text),
      redis.hosts.flatMap((host, index) => [
        `batch ${index + 1} of 3 (update): restart on ${host}`,
        `health check passed on ${host}`,
      ]),
    );
    for (const [index, host] of redis.hosts.entries()) {
      assert.equal(identify(before[index] as number), undefined, "the old process is gone");
      assert.match(readFileSync(path.join(redis.folder(host), "redis.conf"), "utf8"), /^# redis 1\.1\.0 on /);
    }
    await assertReplicates(redis);
    await assertHas(redis, "greeting", "hello");
  });

  await t.test("another deploy skips and restarts nothing", async () => {
    const before = redis.hosts.map((host) => redis.pid(host));
    const { run } = await redis.deploy();
    const { jobs } = run.result as { jobs: { job: string; outcome: string }[] };
    assert.deepEqual(
      jobs.map(({ job, outcome }) => [job, outcome]),
      [["redis", "skipped"]],
    );
    assert.deepEqual(
      redis.hosts.map((host) => redis.pid(host)),
      before,
    );
  });

  await t.test("a primary that was killed comes back with its data; start changes nothing where it runs", async () => {
    assert.equal(await redis.ask(primary, "set", "last", "word"), "OK");
    process.kill(redis.pid(primary), "SIGKILL");
    assert.equal((await redis.service(primary, "status")).exitCode, 1);
    assert.equal((await redis.service(primary, "start")).exitCode, 0);
    const pid = redis.pid(primary);
    assert.equal((await redis.service(primary, "start")).exitCode, 0);
    assert.equal(redis.pid(primary), pid);
    await assertReplicates(redis);
    await assertHas(redis, "last", "word");
  });

  await t.test("status tells the role and its links", async () => {
    const one = await redis.service(primary, "status");
    assert.equal(one.exitCode, 0);
    assert.match(one.stdout, /^pid \d+: ready\nrole:master\nconnected_slaves:2\nslave0:/);
    const other = await redis.service(third, "status");
    assert.match(other.stdout, /\nrole:slave\nmaster_host:127\.0\.0\.1\nmaster_link_status:up\n/);
  });

  await t.test("the hook status prints the replication of each worker", async () => {
    const said = await redis.hook("status");
    assert.match(said[primary] ?? "", /^role:master\nconnected_slaves:2\nslave0:ip=/);
    for (const host of [second, third])
      assert.match(said[host] ?? "", /^role:slave\nmaster_host:127\.0\.0\.1\nmaster_link_status:up\n/);
  });

  await t.test(
    "HR-041 HR-042 the hook failover lets the next deploy restart the primary last, until the next build",
    async () => {
      const before = redis.password;
      const order = /^(127\S+): replica, .*\n(127\S+): replica, .*\n127\.0\.0\.1: primary\n$/;
      const first = order.exec((await redis.hook("failover"))[primary] ?? "")?.slice(1) ?? [];
      assert.deepEqual([...first].sort(), [second, third]);
      // It is put by whichever script is the first in the order that holds now.
      const again = await redis.hook("failover");
      assert.match(Object.values(again).join(""), order);
      const restarts = async (params: object) =>
        steps((await redis.deploy(params)).text).flatMap((step) => /\(update\): restart on (.*)/.exec(step)?.[1] ?? []);
      assert.equal((await restarts({ force: true })).at(-1), primary);
      await assertReplicates(redis);
      await redis.push("1.2.0");
      assert.deepEqual(await restarts({}), redis.hosts);
      assert.equal(redis.password, before);
    },
  );

  await t.test("the health check fails for a replica that follows nobody, and for one that is gone", async (t) => {
    assert.deepEqual(await healthOf(t, redis, second), [0, ""]);
    assert.equal(await redis.ask(second, "replicaof", "no", "one"), "OK");
    assert.deepEqual(await healthOf(t, redis, second), [1, "redis is a master, not a slave\n"]);
    assert.equal((await redis.service(second, "restart")).exitCode, 0);
    assert.equal((await redis.service(third, "stop")).exitCode, 0);
    const [code, said] = await healthOf(t, redis, third);
    assert.deepEqual([code, said.split(":")[0]], [1, "redis does not answer"]);
    assert.equal((await redis.service(third, "start")).exitCode, 0);
    assert.deepEqual(await healthOf(t, redis, third), [0, ""]);
  });

  await t.test("a start that fails says why, with the end of the log, and leaves nothing running", async () => {
    assert.equal((await redis.service(third, "stop")).exitCode, 0);
    assert.equal((await redis.service(third, "stop")).exitCode, 0, "a second stop is no error");
    const file = path.join(redis.folder(third), "redis.conf");
    const whole = readFileSync(file, "utf8");
    writeFileSync(file, `${whole}no-such-setting 1\n`);
    const { exitCode, stderr } = await redis.service(third, "start");
    assert.equal(exitCode, 1);
    assert.match(stderr, /^redis is not ready: .*\/logs\/redis\.log:\n[\s\S]*no-such-setting/);
    assert.ok(!readdirSync(path.join(redis.folder(third), "data")).includes("pid"));
    writeFileSync(file, whole);
    assert.equal((await redis.service(third, "restart")).exitCode, 0);
    await assertReplicates(redis);
  });

  await t.test("everything stops, also a replica that has just started and rewrites its files", async () => {
    const pids = redis.hosts.map((host) => redis.pid(host));
    assert.deepEqual(await redis.stop(), []);
    for (const pid of pids) assert.equal(identify(pid), undefined);
  });
});

/** Runs the hook for health_check by itself; answers its exit code and what it says. */
async function healthOf(t: TestContext, redis: Redis, host: string): Promise<[number | null, string]> {
  const allocation = { id: randomUUID(), job: "redis", worker: host };
  const { runtime, kv } = await testRuntime(t, { allocation: () => allocation });
  kv.put("ops/bucket", "redis_tcp", String(redis.port));
  kv.put("ops/job/redis", "worker_0", redis.hosts[0] as string);
  kv.put("secrets/job/redis", "password", redis.password);
  const script = { allocationId: allocation.id, job: "redis", worker: host, hook: "replicates" };
  const running = { ...script, event: "health_check" } as const;
  runtime.begin(running);
  const scripts = new HookScripts(t, "examples/redis/workspace/jobs/redis/_hooks");
  const { exitCode, stderr } = await scripts.runFile("replicates.py", environmentOf(runtime, running));
  return [exitCode, stderr];
}

/** What the hooks of a run printed, with the worker, in its order. */
function hooksSaid(text: string): string[] {
  return [...text.matchAll(/^.*redis@(\S+) \| (made the .*|is the primary|follows .*)$/gm)].map(
    ([, host, said]) => `${host} ${said}`,
  );
}

/** All files below a folder. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
}
