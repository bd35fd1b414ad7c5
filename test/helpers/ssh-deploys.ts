import { copyFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import type { RunRecord } from "../../lib/run/record.ts";
import { ops } from "../../scripts/local-server.ts";
import { Deploys, type JobsSpec } from "./deploys.ts";
import { SshFleet } from "./ssh-fleet.ts";

/** A run of the command line: how it ended, and what it left. */
export interface CommandRun {
  code: number | null;
  output: string;
  record: RunRecord;
}

/** A bucket whose workers are reached over ssh, deployed by the command line. Some of them can be taken down. */
export class SshDeploys {
  readonly deploys: Deploys;
  readonly hosts: readonly string[];
  readonly #lasting: SshFleet;
  readonly #frail: SshFleet;

  private constructor(deploys: Deploys, hosts: readonly string[], lasting: SshFleet, frail: SshFleet) {
    this.deploys = deploys;
    this.hosts = hosts;
    this.#lasting = lasting;
    this.#frail = frail;
  }

  /** So many workers on addresses of this machine; those with these indexes go down together. */
  static async start(t: TestContext, count: number, frail: readonly number[]): Promise<SshDeploys> {
    const hosts = Array.from({ length: count }, (_, index) => `127.0.0.${index + 1}`);
    const down = hosts.filter((_, index) => frail.includes(index));
    const lasting = await SshFleet.start(t, { hosts: hosts.filter((host) => !down.includes(host)) });
    const sameKey = `AuthorizedKeysFile ${lasting.sshd.clientKey}.pub`;
    const other = await SshFleet.start(t, { hosts: down, sshd: [sameKey] });
    lasting.trustAlso(other);
    const deploys = await Deploys.make(t, (host) => {
      const { user, port } = (down.includes(host) ? other : lasting).sshd;
      return { connection: "ssh", ssh_user: user, ssh_port: port };
    });
    const { dir, layout } = deploys.bucket;
    mkdirSync(path.join(dir, "secrets"), { recursive: true, mode: 0o700 });
    copyFileSync(lasting.sshd.clientKey, path.join(dir, "secrets", "fleet.key"));
    mkdirSync(path.dirname(layout.knownHosts), { recursive: true, mode: 0o700 });
    copyFileSync(lasting.knownHostsFile, layout.knownHosts);
    return new SshDeploys(deploys, hosts, lasting, other);
  }

  async build(jobs: JobsSpec): Promise<void> {
    await this.deploys.build(jobs, { hosts: this.hosts, conf: 'ssh_key = "fleet.key"\nuse_sudo = false\n' });
  }

  /** How many connections have signed in so far. */
  get logins(): number {
    return this.#lasting.logins + this.#frail.logins;
  }

  /** From now on the frail workers are down, until what this answers is called. */
  async takeDown(): Promise<() => Promise<void>> {
    await this.#frail.sshd.stop();
    return () => this.#frail.sshd.run();
  }

  /** Carries out a command in the bucket's folder. */
  async run(...args: string[]): Promise<CommandRun> {
    const { dir, layout } = this.deploys.bucket;
    const { code, stdout, stderr } = await ops([...args, "--bucket-dir", dir]);
    const [newest = ""] = readdirSync(layout.runs).sort().reverse();
    const record = JSON.parse(readFileSync(path.join(layout.runs, newest, "server-run.json"), "utf8"));
    return { code, output: stdout + stderr, record };
  }
}
