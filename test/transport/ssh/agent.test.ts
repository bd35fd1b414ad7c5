import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { Launcher, type OtherUser } from "../../../lib/core/spawn.ts";
import { openAgent } from "../../../lib/transport/ssh/agent.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { NEEDS_ROOT, NOBODY } from "../../helpers/other-user.ts";
import { commandOf, SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { programsFolder } from "../../helpers/worker.ts";

const options = { skip: NEEDS_ROOT };
const never = new AbortController().signal;

/** The access of another user to the workers of a private sshd. */
async function setUp(t: TestContext, key?: { keyFile?: string; oldKeyFile?: string }) {
  const fleet = await SshFleet.start(t);
  const above = temporaryFolder(t);
  chmodSync(above, 0o710);
  chownSync(above, 0, NOBODY.gid);
  const folder = path.join(above, "ssh");
  const { launcher } = fleet;
  const access = await openAgent(folder, { settings: fleet.settings(key), workers: fleet.workers }, NOBODY, {
    launcher,
    signal: never,
  });
  t.after(() => access.close());
  const socket = path.join(folder, "agent");
  const as = (user: OtherUser | undefined) => {
    const env = ["env", `SSH_AUTH_SOCK=${socket}`] as const;
    return (...argv: string[]) => new Launcher({ PATH: process.env.PATH }).run([...env, ...argv], { user, cwd: "/" });
  };
  const agents = () => pids().filter((pid) => commandOf(pid).includes(`-a ${folder}`));
  return { fleet, folder, socket, access, as, them: as(NOBODY), agents };
}

function pids(): number[] {
  const names = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return names.map(Number);
}

test(
  "another user signs in on a worker without the key, and reads neither the key nor the agent's memory",
  options,
  async (t) => {
    const { fleet, access, them, agents, folder } = await setUp(t);
    const ssh = await them("ssh", "-F", access.configFile, "--", fleet.hosts[1] as string, "echo", "signed in");
    assert.deepEqual([ssh.exitCode, ssh.stdout], [0, "signed in\n"], ssh.stderr);
    const [agent] = agents();
    for (const place of [path.join(folder, "keys"), `/proc/${agent}/mem`, `/proc/${agent}/fd`]) {
      const read = await them("sh", "-c", 'ls "$1" >/dev/null && head -c 1 "$1"', "sh", place);
      assert.notEqual(read.exitCode, 0, place);
    }
    for (const name of ["config", "known_hosts"]) {
      assert.equal(statSync(path.join(folder, name)).uid, 0);
      assert.doesNotMatch(readFileSync(path.join(folder, name), "utf8"), /PRIVATE KEY|ControlPath|IdentityFile (?!none)/);
    }
    const client = connect(path.join(folder, "agent"));
    await once(
      client.on("error", () => {}),
      "connect",
    );
    await access.close();
    assert.deepEqual([agents(), existsSync(path.join(folder, "agent"))], [[], false]);
    await until("the end of the client that was connected", () => client.destroyed || client.readableEnded);
  },
);

test("the agent lists both keys while the key is changed, and does nothing but to list and to sign", options, async (t) => {
  const keys = ["new", "old"].map((name) => makeKey(temporaryFolder(t), name, "-t", "ed25519")) as [string, string];
  const { them } = await setUp(t, { keyFile: keys[0], oldKeyFile: keys[1] });
  const listed = async () =>
    (await them("ssh-add", "-L")).stdout
      .trim()
      .split("\n")
      .map((line) => line.split(" ").slice(0, 2).join(" "));
  assert.deepEqual(await listed(), keys.map(publicPart));
  const another = makeKey(temporaryFolder(t), "another", "-t", "ed25519");
  chownSync(another, NOBODY.uid, NOBODY.gid);
  chmodSync(path.dirname(another), 0o711);
  const public_ = path.join(path.dirname(another), "old.pub");
  writeFileSync(public_, publicPart(keys[1]), { mode: 0o644 });
  for (const argv of [
    ["ssh-add", "-D"],
    ["ssh-add", "-d", public_],
    ["ssh-add", another],
    ["ssh-add", "-s", "/usr/lib/any.so"],
    ["sh", "-c", 'printf "x\\nx\\n" | SSH_ASKPASS_REQUIRE=force SSH_ASKPASS=/bin/true ssh-add -x'],
  ]) {
    const { exitCode } = await them(...argv);
    assert.notEqual(exitCode, 0, argv.join(" "));
    assert.deepEqual(await listed(), keys.map(publicPart), `after ${argv.join(" ")}`);
  }
});

test("a third user cannot connect, and bytes that are no request end their connection alone", options, async (t) => {
  const { as, them, socket } = await setUp(t);
  // Of the group that may enter the folder.
  const asGames = await as({ ...NOBODY, name: "games", uid: 5 })("ssh-add", "-L");
  assert.deepEqual([asGames.exitCode, asGames.stdout], [2, ""], asGames.stderr);
  for (const bytes of [Buffer.alloc(64), Buffer.alloc(64, 0xff)]) {
    const client = connect(socket);
    client.write(bytes);
    client.on("error", () => {});
    await until("the end of the connection", () => client.destroyed || client.readableEnded);
  }
  // A request that comes in pieces, behind one that is refused and looks as if it held one, and before another one.
  const client = connect(socket);
  t.after(() => client.destroy());
  const answers: Buffer[] = [];
  client.on("data", (piece) => answers.push(piece));
  const list = [0, 0, 0, 1, 11];
  for (const byte of [0, 0, 0, 6, 19, ...list, ...list, 0, 0, 0, 1, 19]) {
    client.write(Buffer.of(byte));
    for (let round = 0; round < 5; round++) await nextRound();
  }
  const failure = [0, 0, 0, 1, 5];
  const said = () => [...Buffer.concat(answers)];
  await until("three answers", () => said().length > 15 && said().slice(-5).join() === failure.join());
  const listed = Buffer.concat(answers).subarray(5, -5);
  assert.deepEqual([said().slice(0, 5), listed[4], listed.length], [failure, 12, 4 + listed.readUInt32BE()]);
  assert.equal((await them("ssh-add", "-l")).exitCode, 0);
  assert.equal((await as(undefined)("ssh-add", "-l")).exitCode, 0);
});

test("without a key, or with one that ssh cannot use, there is no access, and nothing of it stays", options, async (t) => {
  const missing = path.join(temporaryFolder(t), "none");
  await assert.rejects(setUp(t, { keyFile: missing }), { code: "failed", message: /there is no private key secrets\/none/ });
  const broken = path.join(temporaryFolder(t), "broken");
  writeFileSync(broken, "no key", { mode: 0o600 });
  await assert.rejects(setUp(t, { keyFile: broken }), {
    code: "failed",
    message: /does not take the private key secrets\/broken: /,
  });
  assert.equal(
    pids().some((pid) => commandOf(pid).includes(`ssh-agent -D -a ${path.dirname(broken)}`)),
    false,
  );
});

test(
  "the key before may be gone, and where no agent can be started the sentence says what may be missing",
  options,
  async (t) => {
    const key = makeKey(temporaryFolder(t), "key", "-t", "ed25519");
    const { them } = await setUp(t, { keyFile: key, oldKeyFile: path.join(temporaryFolder(t), "none") });
    assert.equal((await them("ssh-add", "-L")).stdout.trim().split("\n").length, 1);
    const knownHostsFile = path.join(temporaryFolder(t), "known_hosts");
    const setup = { settings: { keyFile: key, knownHostsFile, user: "a", port: 22, options: {} } as SshSettings, workers: [] };
    const launcher = new Launcher({ PATH: await programsFolder(t, "setpriv") });
    await assert.rejects(openAgent(path.join(temporaryFolder(t), "ssh"), setup, NOBODY, { launcher, signal: never }), {
      code: "failed",
      message: /^Cannot start ssh-agent, or setpriv before it: /,
    });
  },
);
