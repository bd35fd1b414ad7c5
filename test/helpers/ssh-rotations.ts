import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { ops } from "../../scripts/local-server.ts";
import { publicPart } from "../../scripts/private-sshd.ts";
import { seeded } from "./random.ts";
import { CommandKills } from "./rekeys.ts";
import { SshFleet } from "./ssh-fleet.ts";
import { temporaryFolder } from "./temporary.ts";
import { makeWorkspace } from "./workspace.ts";

type Clean = Pick<TestContext, "after">;

/** Some workers with one sshd and one home, in which authorized_keys decides who may sign in. */
export interface Site {
  fleet: SshFleet;
  hosts: readonly string[];
  authorized: string;
}

async function startSite(t: Clean, hosts: readonly string[], lines: readonly string[] = []): Promise<Site> {
  const home = temporaryFolder(t);
  const authorized = path.join(home, ".ssh/authorized_keys");
  mkdirSync(path.dirname(authorized), { mode: 0o700 });
  const fleet = await SshFleet.start(t, { hosts, env: { HOME: home }, sshd: [`AuthorizedKeysFile ${authorized}`, ...lines] });
  return { fleet, hosts, authorized };
}

/** A bucket whose workers are reached over ssh, at sites of their own, which know the bucket's key. */
export class SshRotations {
  readonly layout: Layout;
  readonly sites: readonly Site[];

  private constructor(layout: Layout, sites: readonly Site[]) {
    this.layout = layout;
    this.sites = sites;
  }

  /** One site for each list of hosts. With `behind`, the workers of all other sites are reached through the first host. */
  static async start(
    t: Clean,
    lists: readonly (readonly string[])[],
    options: { behind?: true; sshd?: string[] } = {},
  ): Promise<SshRotations> {
    const sites: Site[] = [];
    for (const hosts of lists) sites.push(await startSite(t, hosts, options.sshd));
    const it = new SshRotations(layoutOf(temporaryFolder(t)), sites);
    await it.#fill(options.behind === true);
    return it;
  }

  async #fill(behind: boolean): Promise<void> {
    const [first] = this.sites as [Site];
    const { root, secrets, knownHosts } = this.layout;
    await this.succeed("init");
    const workers = this.sites.flatMap(({ fleet, hosts }, index) =>
      hosts.map((host) => ({
        host,
        connection: "ssh",
        root: path.join(fleet.folder, "roots", host),
        ssh_user: fleet.sshd.user,
        ssh_port: fleet.sshd.port,
        ...(behind && index > 0 && { ssh_jump: `${first.fleet.sshd.user}@${first.hosts[0]}:${first.fleet.sshd.port}` }),
      })),
    );
    const asWorkers = behind ? workers.filter(({ host }) => !first.hosts.includes(host)) : workers;
    makeWorkspace(root, { workers: asWorkers, files: { "ops.conf": "use_sudo = false\nssh_keep_seconds = 20\n" } });
    copyFileSync(first.fleet.sshd.clientKey, path.join(secrets, "worker.key"));
    writeFileSync(knownHosts, this.sites.map(({ fleet }) => readFileSync(fleet.knownHostsFile, "utf8")).join(""), {
      mode: 0o600,
    });
    const key = publicPart(first.fleet.sshd.clientKey);
    for (const { authorized } of this.sites)
      writeFileSync(
        authorized,
        `# who may sign in\nssh-ed25519 AAAAC3Nz somebody else\nno-pty,environment="A=b c" ${key} ops\n`,
        { mode: 0o600 },
      );
    await this.succeed("build");
  }

  async ops(...args: string[]) {
    const { code, stdout, stderr } = await ops([...args, "--bucket-dir", this.layout.root]);
    return { code, stdout, said: stdout + stderr };
  }

  async succeed(...args: string[]): Promise<string> {
    const { code, said } = await this.ops(...args);
    assert.equal(code, 0, `${args.join(" ")}: ${said}`);
    return said;
  }

  /** All workers answer a command. */
  async checkReached(): Promise<void> {
    await this.succeed("worker", "uptime");
  }

  get keyFile(): string {
    return path.join(this.layout.secrets, "worker.key");
  }

  /** The key of the bucket as `<type> <base64>`. */
  get key(): string {
    const { stdout } = spawnSync("ssh-keygen", ["-y", "-f", this.keyFile], { encoding: "utf8" });
    return stdout.trim().split(" ").slice(0, 2).join(" ");
  }

  get isUnderway(): boolean {
    return [".ssh_key.next", ".ssh_key.old"].some((name) => existsSync(path.join(this.layout.secrets, name)));
  }

  /** The lines of a site that let in, without those of others. */
  linesOf(site: Site): string[] {
    const lines = readFileSync(site.authorized, "utf8").trimEnd().split("\n");
    assert.deepEqual(lines.slice(0, 2), ["# who may sign in", "ssh-ed25519 AAAAC3Nz somebody else"]);
    return lines.slice(2);
  }
}

/** Kills `ops ssh-key rotate` at random moments: after each kill every worker is reached, and the next rotation ends it. */
export async function sshKeyKillRounds(t: Clean, hits: number, seed: number): Promise<{ hits: number; rotated: number }> {
  const random = seeded(seed);
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2"]]);
  const kills = new CommandKills(it.layout, random, { hits, seed });
  let rotated = 0;
  const finish = async () => {
    await it.succeed("ssh-key", "rotate");
    for (const site of it.sites) assert.deepEqual(it.linesOf(site), [`no-pty,environment="A=b c" ${it.key}`]);
    assert.equal(it.isUnderway, false);
    rotated++;
  };
  await kills.timed(["ssh-key", "rotate"], finish);
  while (kills.isWanting)
    await kills.kill(["ssh-key", "rotate"], async () => {
      await it.checkReached();
      if (it.isUnderway && random() < 0.5) await finish();
    });
  await finish();
  await it.checkReached();
  return { hits: kills.hits, rotated };
}
