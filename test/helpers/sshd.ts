import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import type { TestContext } from "node:test";
import { type KeyKind, PrivateSshd } from "../../scripts/private-sshd.ts";
import { temporaryFolder } from "./temporary.ts";

const HOSTS = Array.from({ length: 9 }, (_, index) => `127.0.0.${index + 1}`);

/** The default key exchange costs ten times as much, at each of a thousand logins; the demo uses the default. */
const QUICK = "KexAlgorithms curve25519-sha256";

/** A private sshd for one test, by default on 127.0.0.1 to 127.0.0.9; it logs every connection. */
export async function startSshd(
  t: Pick<TestContext, "after">,
  kinds: readonly KeyKind[],
  lines: readonly string[] = [],
  hosts: readonly string[] = HOSTS,
): Promise<PrivateSshd> {
  const given = ["LogLevel DEBUG1", ...lines, QUICK];
  const sshd = await PrivateSshd.start(temporaryFolder(t), hosts, given, kinds);
  t.after(() => sshd.stop());
  return sshd;
}

/** `SHA256:…` of a key pair as ssh-keygen tells it. */
export function fingerprintBy(file: string): string {
  return String(spawnSync("ssh-keygen", ["-l", "-f", `${file}.pub`]).stdout).split(" ")[1] as string;
}

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}
