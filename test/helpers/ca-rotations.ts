import assert from "node:assert/strict";
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { readRotation } from "../../lib/bucket/base/authority-change.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { takeBucket } from "../../lib/run/recovery.ts";
import { ops } from "../../scripts/local-server.ts";
import { seeded } from "./random.ts";
import { CommandKills } from "./rekeys.ts";
import { temporaryFolder } from "./temporary.ts";
import { makeWorkspace } from "./workspace.ts";

/** Addresses that act as two workers of this machine. */
const WORKERS = ["127.0.0.1", "127.0.0.2"];

/** A deployed bucket with a job that has a certificate on two workers of this machine. */
export class Rotations {
  readonly layout: Layout;
  readonly #roots: string;
  #bucketId = "";

  private constructor(layout: Layout, roots: string) {
    this.layout = layout;
    this.#roots = roots;
  }

  static async start(t: Pick<TestContext, "after">): Promise<Rotations> {
    const it = new Rotations(layoutOf(temporaryFolder(t)), temporaryFolder(t));
    it.#bucketId = JSON.parse((await it.ops("init", "--json")).stdout).bucket_id;
    makeWorkspace(it.layout.root, {
      workers: WORKERS.map((host) => ({ host, connection: "local", root: path.join(it.#roots, host) })),
      jobs: { web: { version: "1.0.0", selectors: ["worker"], certs: { server: {} } } },
    });
    await it.deploy();
    return it;
  }

  /** Carries out a command in the bucket. */
  async ops(...args: string[]) {
    return await ops([...args, "--bucket-dir", this.layout.root]);
  }

  async deploy(...args: string[]): Promise<void> {
    const { code, stdout, stderr } = await this.ops("deploy", "--build", ...args);
    assert.equal(code, 0, stdout + stderr);
  }

  async phase(): Promise<string> {
    return (await readRotation(this.layout))?.phase ?? "none";
  }

  /** A file of `certs/` of the job on a worker. */
  file(host: string, name: string): string {
    return readFileSync(path.join(this.#roots, host, this.#bucketId, "jobs/web/certs", name), "utf8");
  }

  /** Which worker trusts the certificate of which: all of them, at any moment of a rotation. */
  checkTrust(): void {
    for (const one of WORKERS)
      for (const other of WORKERS) {
        const certificate = new X509Certificate(this.file(other, "server.crt"));
        assert.ok(certificate.checkPrivateKey(createPrivateKey(this.file(other, "server.key"))));
        const trusted = this.file(one, "ca.crt")
          .split(/(?<=END CERTIFICATE-----\n)/)
          .filter(Boolean);
        assert.ok(
          trusted.some((ca) => certificate.verify(new X509Certificate(ca).publicKey)),
          `${one} does not trust the certificate of ${other}`,
        );
      }
  }
}

/**
 * Kills `ops ca rotate` and the deploys after it at random moments; after each kill every worker must trust every other, and
 * the next commands go on. Answers how many kills met a command at work, and how many rotations came to their end.
 */
export async function caKillRounds(
  t: Pick<TestContext, "after">,
  hits: number,
  seed: number,
): Promise<{ hits: number; rotated: number }> {
  const random = seeded(seed);
  const it = await Rotations.start(t);
  const kills = new CommandKills(it.layout, random, { hits, seed });
  let rotated = 0;
  await kills.timed(["deploy", "--build"], () => it.deploy());
  while (kills.isWanting) {
    const before = await it.phase();
    await kills.kill(random() < 0.6 ? ["ca", "rotate"] : ["deploy", "--build"], async () => {
      it.checkTrust();
      // What the next command does first.
      await (await takeBucket(it.layout, "0190a5e8-0000-7000-8000-00000000000f", "test")).release();
      it.checkTrust();
      await it.deploy();
      it.checkTrust();
    });
    if (before === "issue" && (await it.phase()) === "none") rotated++;
  }
  while ((await it.phase()) !== "none") {
    const { code, stdout, stderr } = await it.ops("ca", "rotate");
    assert.equal(code, 0, stdout + stderr);
    await it.deploy();
    it.checkTrust();
    if ((await it.phase()) === "none") rotated++;
  }
  return { hits: kills.hits, rotated };
}
