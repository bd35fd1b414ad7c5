import { chmod, chown, mkdir } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { sleep } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { PRIVATE_FILE, PRIVATE_FOLDER, readBounded, writeAtomic } from "../../core/files.ts";
import type { Launcher, OtherUser } from "../../core/spawn.ts";
import { requireKey, type SshSetup } from "./folder.ts";
import { SSH_FILES, sshConfig } from "./openssh.ts";

/** Who may enter the folder above may use and read what is in this one, and change nothing. */
const FOLDER_MODE = 0o711;
const FILE_MODE = 0o644;
const KEY_BYTES = 1024 * 1024;
const KNOWN_HOSTS_BYTES = 64 * 1024 * 1024;
const READY_LIMIT_MS = 10_000;
const GRACE_MS = 1_000;
const MOST_CLIENTS = 256;

/**
 * The agent ends with this process however that ends. It belongs to root: one that belonged to the other user could be
 * watched by other processes of that user while it starts, and could be replaced at its socket.
 */
const AGENT = ["setpriv", "--no-new-privs", "--pdeathsig", "KILL", "--", "ssh-agent", "-D", "-a"] as const;

/**
 * Makes a folder, in one that only root can change, with what `ssh` of another user needs: configuration, known hosts and
 * the socket of an agent. The agent has the key, and the key before while there is one, from our memory. Only root and
 * that user can connect, and the agent only lists its keys and signs. Throws `failed`: without a private key, among others.
 */
export async function openAgent(
  folder: string,
  setup: SshSetup,
  { uid, gid }: OtherUser,
  { launcher, signal }: { launcher: Launcher; signal: AbortSignal },
) {
  const { settings, workers } = setup;
  await requireKey(settings);
  const file = (name: keyof typeof SSH_FILES) => path.join(folder, SSH_FILES[name]);
  const closed = path.join(folder, "keys");
  await mkdir(folder);
  await chmod(folder, FOLDER_MODE);
  await mkdir(closed, PRIVATE_FOLDER);
  const knownHosts = await readBounded(settings.knownHostsFile, KNOWN_HOSTS_BYTES);
  await writeAtomic(file("knownHosts"), knownHosts ?? "", FILE_MODE);
  await writeAtomic(file("config"), sshConfig("agent", folder, settings, workers), FILE_MODE);
  await using opened = new AsyncDisposableStack();
  const socket = path.join(closed, "socket");
  const agent = await launcher.start([...AGENT, socket]);
  opened.defer(() => agent.end(GRACE_MS));
  await listening(socket, agent.ended, signal);
  for (const key of [settings.keyFile, settings.oldKeyFile]) if (key !== undefined) await addKey(key, socket, launcher, signal);
  const door = await openDoor(file("agent"), socket);
  opened.defer(() => door.close());
  await chmod(file("agent"), PRIVATE_FILE);
  await chown(file("agent"), uid, gid);
  const rest = opened.move();
  // The other user reaches the workers by `ssh -F <configFile>`.
  return { configFile: file("config"), close: () => rest.disposeAsync() };
}

async function listening(socket: string, ended: Promise<unknown>, signal: AbortSignal): Promise<void> {
  let isOver = false;
  void ended.then(() => {
    isOver = true;
  });
  const start = performance.now();
  while (!(await answers(socket))) {
    if (isOver || performance.now() - start > READY_LIMIT_MS)
      throw new Failure("failed", "Cannot start ssh-agent, or setpriv before it: are openssh-client and util-linux installed?");
    await sleep(5, signal);
  }
}

function answers(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const client = connect(socket, () => resolve(true)).on("error", () => resolve(false));
    client.on("connect", () => client.destroy());
  });
}

/** The key goes over a pipe: it is in no argument and in no file that the agent opens. */
async function addKey(keyFile: string, socket: string, launcher: Launcher, signal: AbortSignal): Promise<void> {
  const key = await readBounded(keyFile, KEY_BYTES);
  if (!key) return;
  const env = { SSH_AUTH_SOCK: socket, SSH_ASKPASS_REQUIRE: "never" };
  const outcome = await launcher.run(["ssh-add", "-q", "-"], { env, input: key, timeoutMs: READY_LIMIT_MS, signal });
  if (outcome.exitCode === 0) return;
  const why = outcome.stderr.trim().split("\n").at(-1) || outcome.reason;
  throw new Failure("failed", `ssh-agent does not take the private key secrets/${path.basename(keyFile)}: ${why}`);
}

/** Listens at `place` and hands the requests that are permitted to the agent at `socket`. */
async function openDoor(place: string, socket: string): Promise<{ close(): Promise<void> }> {
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    const talk = pipeline(client, permitted, connect(socket), client);
    void talk.catch(() => {}).finally(() => clients.delete(client));
  });
  server.maxConnections = MOST_CLIENTS;
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(place, resolve));
  return {
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const client of clients) client.destroy();
      }),
  };
}

// The messages of an agent (draft-ietf-sshm-ssh-agent): four bytes for the length, one for the type, the rest.
const LENGTH_BYTES = 4;
const MOST_REQUEST_BYTES = 256 * 1024;
const REQUEST_IDENTITIES = 11;
const SIGN_REQUEST = 13;
/** A message of a type that no agent knows: the agent answers that it failed. */
const UNKNOWN = Buffer.from([0, 0, 0, 1, 255]);

/**
 * The requests of a client, each that is neither for the list of keys nor for a signature replaced by one that fails: a
 * client could otherwise remove the keys, lock the agent, or have it load a library.
 */
async function* permitted(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const piece of pieces) {
    rest = Buffer.concat([rest, piece]);
    while (rest.length > LENGTH_BYTES) {
      const length = rest.readUInt32BE();
      if (length === 0 || length > MOST_REQUEST_BYTES) throw new Error("this is no request to an agent");
      const end = LENGTH_BYTES + length;
      if (rest.length < end) break;
      const type = rest[LENGTH_BYTES];
      yield type === REQUEST_IDENTITIES || type === SIGN_REQUEST ? rest.subarray(0, end) : UNKNOWN;
      rest = rest.subarray(end);
    }
  }
}
