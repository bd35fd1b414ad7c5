import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Launcher } from "../lib/core/spawn.ts";
import { compareTrees } from "../lib/transport/files/compare.ts";
import { type SyncFile, syncTree } from "../lib/transport/files/sync.ts";
import { SshConnections } from "../lib/transport/ssh/ssh.ts";
import { PrivateSshd } from "../scripts/private-sshd.ts";
import { median, timed } from "./measure.ts";

const HOSTS = Array.from({ length: 100 }, (_, index) => `127.0.1.${index + 1}`);
const JOBS = ["one", "two", "three", "four", "five"];
const FILES = 20;
const ROUNDS = 7;
const BUCKET_ID = "0190a5e8-0000-7000-8000-000000000001";

/** The files of 5 jobs on each of 100 workers against what was promoted, over ssh connections that are open. */
export async function drift(): Promise<void> {
  const folder = mkdtempSync(path.join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "ops-bench-"));
  const sshd = await PrivateSshd.start(path.join(folder, "sshd"), HOSTS, ["MaxStartups 200"]);
  const knownHostsFile = path.join(folder, "known_hosts");
  writeFileSync(knownHostsFile, sshd.knownHosts);
  const { user, port, clientKey: keyFile } = sshd;
  const ssh = await SshConnections.open(
    {
      user,
      port,
      keyFile,
      knownHostsFile,
      options: {},
      concurrency: 32,
      useSudo: false,
      reattachSeconds: 60,
      spoolBytes: 2 ** 26,
    },
    HOSTS.map((host) => ({ host, connection: "ssh", root: path.join(folder, "roots", host) })),
    new Launcher(process.env),
  );
  try {
    const transports = HOSTS.map((host) =>
      ssh.transport({ host, connection: "ssh", root: path.join(folder, "roots", host) }, BUCKET_ID),
    );
    const files = Array.from({ length: FILES }, (_, index) => fileOf(`file${index}`));
    for (const name of JOBS) await Promise.all(transports.map((one) => syncTree(one, { name, folder: `jobs/${name}`, files })));
    const digests = Object.fromEntries(files.map(({ path, sha256 }) => [path, `644:${sha256}`]));
    const wanted = new Map(JOBS.map((name) => [name, digests]));
    const { signal } = new AbortController();
    const look = () => timed(() => Promise.all(transports.map((one) => compareTrees(one, wanted, signal))));
    const times: number[] = [];
    for (let round = -1; round < ROUNDS; round++) {
      const ms = await look();
      if (round >= 0) times.push(ms);
    }
    const range = `${Math.min(...times).toFixed(0)} - ${Math.max(...times).toFixed(0)}`;
    console.log(`drift of ${JOBS.length} jobs with ${FILES} files each on ${HOSTS.length} workers, warm`);
    console.log(`  median of ${ROUNDS}: ${median(times).toFixed(0)} ms (${range}); wanted: less than 1,000 ms`);
  } finally {
    await ssh.close();
    await sshd.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function fileOf(name: string): SyncFile {
  const content = randomBytes(2048);
  const sha256 = createHash("sha256").update(content).digest("hex");
  return {
    path: name,
    mode: 0o644,
    sha256,
    size: content.length,
    async *open() {
      yield content;
    },
  };
}
