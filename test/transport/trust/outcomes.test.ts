import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { Launcher } from "../../../lib/core/spawn.ts";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import { type TrustOptions, trustWorkers } from "../../../lib/transport/trust/trust.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const KEYS = ["one", "other"].map((name) => publicPart(makeKey(temporaryFolder(), name, "-t", "ed25519"))) as [string, string];

/** Gives trust to hosts that show the first key, but for what `shows` says of them; `told` are the results. */
function setUp(t: TestContext, shows: (host: string) => string | undefined = () => undefined) {
  const file = path.join(temporaryFolder(t), "known_hosts");
  const [told, asked]: string[][] = [[], []];
  const launcher = {
    async run(argv: string[]) {
      const [host = "", kind = ""] = [argv.at(-1), argv.at(-3)];
      asked?.push(host);
      const stdout = `# ${host} SSH-2.0\n${kind === "ed25519" ? `${host} ${shows(host) ?? KEYS[0]}\n` : ""}`;
      return { reason: "exit", exitCode: 0, signal: null, stdout, stderr: "", durationMs: 5 };
    },
  } as unknown as Launcher;
  const given = { knownHostsFile: file, options: {}, keyFile: "/none", user: "agent", concurrency: 8, force: false };
  const give = (workers: WorkerAddress[], more: Partial<TrustOptions> = {}) => {
    const onResult: TrustOptions["onResult"] = (name, { outcome, error }) => told?.push(`${name} ${outcome} ${error}`);
    return trustWorkers(workers, { ...given, launcher, signal: new AbortController().signal, onResult, ...more });
  };
  return { give, told, asked, text: () => (existsSync(file) ? readFileSync(file, "utf8") : "") };
}

const at = (host: string, more: Partial<WorkerAddress> = {}): WorkerAddress => ({
  host,
  connection: "ssh",
  root: "/srv",
  ...more,
});

test("trust is recorded once; another key is refused, and taken with force; this machine needs none", async (t) => {
  const shown = new Map<string, string>();
  const { give, told, asked, text } = setUp(t, (host) => shown.get(host));
  const workers = [at("w1"), at("127.0.0.1", { connection: "local" })];
  const { workers: found } = await give(workers);
  assert.deepEqual(
    found.map(({ host }) => host),
    ["w1", null],
  );
  assert.equal(text(), `w1 ${KEYS[0]}\n`);
  await give(workers);
  shown.set("w1", KEYS[1]);
  await give(workers);
  assert.equal(text(), `w1 ${KEYS[0]}\n`);
  for (let time = 0; time < 2; time++) await give(workers, { force: true });
  assert.equal(text(), `w1 ${KEYS[1]}\n`);
  assert.deepEqual(
    told?.filter((one) => one.includes("w1")),
    [
      ...["trusted null", "unchanged null", "changed its host key is not the known one", "replaced null", "unchanged null"].map(
        (outcome) => `worker w1 ${outcome}`,
      ),
    ],
  );
  assert.ok(!asked?.includes("127.0.0.1"));
});

test("behind a jump host that is not trusted no worker is asked", async (t) => {
  const { give, told, asked } = setUp(t, () => "");
  await give([at("w1", { sshJump: "gate" })]);
  assert.deepEqual(told?.at(-1), "worker w1 unreachable its jump host gate is not trusted");
  assert.ok(asked?.every((host) => host === "gate"));
});

test("a cancel is no result of a host, and neither is a mistake of ours", async (t) => {
  const stop = new AbortController();
  const cancelled = setUp(t, () => {
    stop.abort();
    return undefined;
  });
  await assert.rejects(cancelled.give([at("w1")], { signal: stop.signal }), { code: "cancelled" });
  const mistaken = setUp(t, () => {
    throw new TypeError("a mistake");
  });
  await assert.rejects(mistaken.give([at("w1")]), { name: "TypeError" });
  assert.deepEqual([cancelled.told, mistaken.told], [[], []]);
});
