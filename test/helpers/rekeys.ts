import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import type { TestContext } from "node:test";
import { digestOf, sealedPieces } from "../../lib/bucket/base/contents.ts";
import { type Database, openDatabase, openForReading } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { keepContents } from "../../lib/bucket/catalog/contents.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey, SEALED_CONTENTS, sealedValues, tryUnseal } from "../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { type SealKey, unsealedLength, unsealPieces } from "../../lib/codec/crypto/seal.ts";
import { sleep } from "../../lib/core/async.ts";
import { ops, PROGRAM } from "../../scripts/local-server.ts";
import { randomly, seeded } from "./random.ts";
import { temporaryFolder } from "./temporary.ts";

type Clean = Pick<TestContext, "after">;
type ContentRow = [sha256: string, bytes: number, content: Uint8Array | null];

const LARGE_BYTES = 3 * 1024 * 1024;

/** A bucket with so many secrets, most of them in two versions, a deleted one, and kept contents, two of them large. */
export async function sealedBucket(t: Clean, secrets: number, seed: number): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  const random = seeded(seed);
  const key = await loadKvKey(layout);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, key);
  for (const version of [1, 2]) {
    for (let index = 0; index < secrets; index++) {
      kv.put("secrets/job/web", `password_${index}`, `value ${version} of ${index}`);
      kv.put(`ops/job/web/worker/10.0.0.${index}`, "certs/server.key", `private key ${version} of ${index}`);
    }
    kv.put("vars/job/web", "open", `no secret ${version}`);
    kv.flush();
  }
  kv.delete("secrets/job/web", "password_0");
  kv.flush();
  const contents = [...Array(5).keys()].map((index) => Buffer.from(`conf ${index} with a secret`));
  const large = [0, 1].map(() => Buffer.alloc(LARGE_BYTES, randomly(random, 997)));
  for (const content of [...contents, ...large])
    keepContents(db, kv, [
      { path: "f", mode: 0o600, sha256: digestOf(() => [content]), content, isSecret: true, secrets: ["with a secret"] },
    ]);
  return layout;
}

/** Everything that is sealed, opened: each version of each value, each content. What a key does not open is missing. */
export async function openedAll(layout: Layout, given?: SealKey): Promise<Map<string, string>> {
  const key = given ?? (await loadKvKey(layout));
  using db = openForReading(layout.database);
  const values = db.tuples<[string, string, number, string]>("SELECT namespace, key, version, value FROM kv_version");
  const found: [string, string | undefined][] = values.map(([namespace, name, version, value]) => [
    `${namespace} ${name} ${version}`,
    value.startsWith("enc:") ? tryUnseal(key, namespace, name, value) : value,
  ]);
  for (const row of db.tuples<ContentRow>("SELECT sha256, size_bytes, content FROM contents WHERE sealed = 1"))
    found.push([row[0], openedContent(db, key, row)]);
  return new Map(found.filter((one): one is [string, string] => one[1] !== undefined));
}

function openedContent(db: Database, key: SealKey, [sha256, bytes, content]: ContentRow): string | undefined {
  if (content !== null) return tryUnseal(key, SEALED_CONTENTS, sha256, Buffer.from(content).toString());
  const pieces = () =>
    unsealPieces(key, [SEALED_CONTENTS, sha256], sealedPieces(db.contents, sha256, bytes), unsealedLength(bytes));
  try {
    return digestOf(pieces);
  } catch {
    return undefined;
  }
}

/** Fails unless a change of the key has come to its end: everything opens with the one key that there is. */
export async function assertRekeyed(layout: Layout, before: Buffer, content: ReadonlyMap<string, string>): Promise<void> {
  assert.deepEqual([layout.kvKeyNew, layout.kvKeyOld].filter(existsSync), []);
  const key = readFileSync(layout.kvKey);
  assert.ok(!key.equals(before), "the key is another one");
  assert.deepEqual(await openedAll(layout, key), content);
  using db = openForReading(layout.database);
  assert.deepEqual(sealedValues(db, key).unreadable, []);
  assert.equal(sealedValues(db, before).unreadable.length, sealedValues(db, key).sealed);
}

const MISSES_PER_HIT = 6;
const LOOK_MS = 3;

/**
 * Starts commands in a bucket and kills each of them at a random moment of its work: while the command holds the bucket's
 * lock. The work is taken to be as long as the last time. Counts the kills that have met a command at work.
 */
export class CommandKills {
  readonly #layout: Layout;
  readonly #random: () => number;
  readonly #most: number;
  readonly #seed: number;
  readonly #tookMs = new Map<string, number>();
  #rounds = 0;
  /** The kills that have met a command at work. */
  hits = 0;

  constructor(layout: Layout, random: () => number, { hits, seed }: { hits: number; seed: number }) {
    this.#layout = layout;
    this.#random = random;
    this.#most = hits;
    this.#seed = seed;
  }

  /** True until there are as many hits as are wanted. Fails where that takes too many rounds. */
  get isWanting(): boolean {
    const told = `seed ${this.#seed}: only ${this.hits} hits in ${this.#rounds} rounds`;
    assert.ok(this.#rounds <= this.#most * MISSES_PER_HIT, told);
    return this.hits < this.#most;
  }

  /** Learns how long a command takes that is not killed. */
  async timed(args: readonly string[], work: () => Promise<unknown>): Promise<void> {
    const started = performance.now();
    await work();
    this.#tookMs.set(args.join(" "), performance.now() - started);
  }

  /** Starts a command and kills it, unless it has ended by then; `check` says whether all is well, also once it has ended. */
  async kill(args: readonly string[], check: () => Promise<void>): Promise<void> {
    this.#rounds++;
    const latestMs = this.#tookMs.get(args.join(" ")) ?? Math.max(...this.#tookMs.values());
    const afterMs = this.#random() * latestMs;
    const command = [PROGRAM, ...args, "--bucket-dir", this.#layout.root];
    const child: ChildProcess = spawn(process.execPath, command, { stdio: "ignore", detached: true });
    const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
    const isAtWork = async () => {
      const lock = await readLock(this.#layout);
      return typeof lock === "object" && lock.holders[0]?.pid === child.pid;
    };
    const isOver = () => child.exitCode !== null || child.signalCode !== null;
    while (!isOver() && !(await isAtWork())) await sleep(LOOK_MS);
    const began = performance.now();
    await Promise.race([ended, sleep(afterMs)]);
    if (!isOver()) child.kill("SIGKILL");
    const [, signal] = await ended;
    if (signal === "SIGKILL" && (await isAtWork())) this.hits++;
    else this.#tookMs.set(args.join(" "), Math.max(1, performance.now() - began));
    try {
      await check();
    } catch (error) {
      const what = `seed ${this.#seed}, round ${this.#rounds}: ${args.join(" ")} killed after ${afterMs.toFixed(0)} ms of work`;
      throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
    }
  }
}

/**
 * Kills `ops kv rekey` at random moments until `hits` kills have met one at work. After each everything can be read; now and
 * then a rekey is let to its end. Answers how many changes of the key came to their end.
 */
export async function rekeyKillRounds(t: Clean, hits: number, seed: number): Promise<{ hits: number; rekeyed: number }> {
  const random = seeded(seed);
  const layout = await sealedBucket(t, 800, seed);
  const content = await openedAll(layout);
  const kills = new CommandKills(layout, random, { hits, seed });
  const isUnderway = () => [layout.kvKeyNew, layout.kvKeyOld].some(existsSync);
  let before = readFileSync(layout.kvKey);
  let rekeyed = 0;
  const finish = async () => {
    const { code, stdout, stderr } = await ops(["kv", "rekey", "--bucket-dir", layout.root]);
    assert.equal(code, 0, stdout + stderr);
    await assertRekeyed(layout, before, content);
    before = readFileSync(layout.kvKey);
    rekeyed++;
  };
  await kills.timed(["kv", "rekey"], finish);
  while (kills.isWanting)
    await kills.kill(["kv", "rekey"], async () => {
      assert.deepEqual(await openedAll(layout), content);
      if (!isUnderway()) before = readFileSync(layout.kvKey);
      if (random() < 0.3) await finish();
    });
  await finish();
  return { hits: kills.hits, rekeyed };
}
