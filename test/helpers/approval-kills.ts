import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { sleep } from "../../lib/core/async.ts";
import { namesIn } from "../../lib/core/files.ts";
import { type Infer, valueIn } from "../../lib/core/shape.ts";
import { PROPOSAL } from "../../lib/run/approval/proposal.ts";
import { readRecord, runIds } from "../../lib/run/record.ts";
import type { SHOWN_PROPOSAL } from "../../lib/server/approval/shape.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { seeded } from "./random.ts";
import { TOKEN } from "./server.ts";
import { temporaryFolder } from "./temporary.ts";
import { makeWorkspace } from "./workspace.ts";

type Clean = Pick<TestContext, "after">;
type Person = "ada" | "ben" | "eva";
type ShownProposal = Infer<typeof SHOWN_PROPOSAL>;

/** What the kills have met. */
interface ApprovalKills {
  /** Kills that left a request without its answer. */
  hits: number;
  /** Proposals that a run has used, and approved ones that were started only after a kill. */
  used: number;
  startedLater: number;
  /** Proposals that are used up without a run: the server was killed between the two. */
  without: number;
}

const REQUIRED = 2;
const MISSES_PER_HIT = 6;
/** A kill comes at most so long after one of the first answers; that is longer than most answers take. */
const [MOST_ANSWERS, LATEST_MS] = [6, 100];

/**
 * Kills a server with SIGKILL at random moments while people propose, approve, reject and start, often at the same time, until
 * `hits` kills have met a request. After each restart no proposal is half written, what was answered holds, nobody's approval
 * counts twice, no proposal is used by two runs, and an approved one that was not used still can be.
 */
export async function approvalKillRounds(t: Clean, hits: number, seed: number): Promise<ApprovalKills> {
  const random = seeded(seed);
  const rig = await ApprovalRig.start(t);
  const met = { hits: 0, used: 0, startedLater: 0, without: 0 };
  for (let number = 1; met.hits < hits; number++) {
    assert.ok(number <= hits * MISSES_PER_HIT, `seed ${seed}: only ${met.hits} hits in ${number} rounds`);
    const [answers, afterMs] = [Math.floor(random() * MOST_ANSWERS), random() * LATEST_MS];
    const round = new Round(rig, `round ${number}`, random);
    try {
      const work = round.work();
      await Promise.race([round.answered(answers), work]);
      await sleep(afterMs);
      await rig.server.stop("SIGKILL");
      await work;
      await rig.requireWhole();
      await rig.open();
      await round.check(met);
      if (round.unanswered > 0) met.hits++;
    } catch (error) {
      const what = `seed ${seed}, round ${number}: killed ${afterMs.toFixed(0)} ms after ${answers} answers`;
      throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
    }
  }
  return met;
}

/** A server with a bucket of one worker that asks for two approvals, and people who may start runs there. */
class ApprovalRig {
  readonly root: string;
  readonly bucket: string;
  readonly layout: Layout;
  server: LocalServer;
  readonly #tokens: Record<Person, string>;

  private constructor(root: string, server: LocalServer, bucket: string, tokens: Record<Person, string>) {
    this.root = root;
    this.server = server;
    this.bucket = bucket;
    this.layout = layoutOf(path.join(root, bucket));
    this.#tokens = tokens;
  }

  static async start(t: Clean): Promise<ApprovalRig> {
    const folder = temporaryFolder(t);
    const root = path.join(folder, "root");
    const server = await LocalServer.start(root, { token: TOKEN });
    const bucket = await server.createBucket();
    const workers = [{ host: "127.0.0.1", connection: "local" as const, root: path.join(folder, "worker") }];
    makeWorkspace(path.join(root, bucket), { workers });
    const made = async (name: Person) => {
      const { body } = await server.call<{ token: string }>("POST", "/api/tokens", { name, role: "deploy" });
      return body.token;
    };
    const rig = new ApprovalRig(root, server, bucket, { ada: await made("ada"), ben: await made("ben"), eva: await made("eva") });
    t.after(() => rig.server.stop("SIGKILL"));
    assert.equal((await server.run(bucket, "build")).status, "succeeded");
    const { status } = await server.call("PUT", `/api/buckets/${bucket}`, { approvals: REQUIRED });
    assert.equal(status, 200);
    return rig;
  }

  async open(): Promise<void> {
    this.server = await LocalServer.start(this.root, { token: TOKEN });
  }

  /** Asks as somebody, below the bucket; undefined where no answer came. */
  // biome-ignore lint/suspicious/noExplicitAny: the answers of several routes.
  async ask(who: Person, method: string, target: string, body?: unknown): Promise<{ status: number; body: any } | undefined> {
    try {
      const response = await fetch(`${this.server.url}/api/buckets/${this.bucket}${target}`, {
        method,
        headers: { authorization: `Bearer ${this.#tokens[who]}`, "content-type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      return { status: response.status, body: text === "" ? null : JSON.parse(text) };
    } catch {
      return undefined;
    }
  }

  /** Fails where a proposal on the disk is not a whole one. Before the first proposal there is no folder for them. */
  async requireWhole(): Promise<void> {
    for (const name of (await namesIn(this.layout.proposals)).filter((one) => !one.startsWith(".")))
      assert.ok(valueIn(PROPOSAL, readFileSync(path.join(this.layout.proposals, name), "utf8")), `${name} is not whole`);
  }

  /** The ids of the runs that have used a proposal, with the approval of two people each. */
  async runsOf(proposal: string): Promise<string[]> {
    const records = (await runIds(this.layout)).map((id) => readRecord(this.layout, id));
    return records.flatMap((record) => {
      if (record?.approval?.proposal !== proposal) return [];
      assert.deepEqual([...record.approval.by].sort(), ["ben", "eva"]);
      return [record.id];
    });
  }
}

/** One proposal, and what its people were answered. */
class Round {
  readonly #rig: ApprovalRig;
  readonly #reason: string;
  readonly #random: () => number;
  #id: string | undefined;
  readonly #approvedBy = new Set<string>();
  readonly #runs = new Set<string>();
  #isRejected = false;
  /** How many requests had no answer, and how many had one. */
  unanswered = 0;
  #answers = 0;
  #onAnswer = () => {};

  constructor(rig: ApprovalRig, reason: string, random: () => number) {
    this.#rig = rig;
    this.#reason = reason;
    this.#random = random;
  }

  /** Proposes, approves and starts; now and then somebody approves twice, rejects, or starts at the same moment. */
  async work(): Promise<void> {
    const wish = { kind: "run_command", params: { command: "true" }, reason: this.#reason };
    const made = await this.#asked("ada", "/proposals", wish);
    if (!made) return;
    assert.equal(made.status, 201, JSON.stringify(made.body));
    this.#id = made.body.id;
    const people = this.#pick<Person[]>(["ben", "eva"], ["eva", "ben", "ben"], ["ben", "ben"]);
    if (this.#random() < 0.5) await Promise.all(people.map((who) => this.#approve(who)));
    else for (const who of people) await this.#approve(who);
    const ends = [() => this.#start(), () => this.#start(), () => this.#reject()];
    await Promise.all(ends.slice(0, this.#pick(1, 2, 3)).map((act) => act()));
  }

  /** Resolves once so many requests are answered. */
  async answered(count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onAnswer = () => {
      if (this.#answers >= count) resolve();
    };
    this.#onAnswer();
    await promise;
  }

  /** What must hold once the next server answers; an approved proposal is started, and any other one is withdrawn. */
  async check(met: Omit<ApprovalKills, "hits">): Promise<void> {
    const found = await this.#found();
    if (!found) return assert.equal(this.#id, undefined, "a proposal that was made is there");
    const { id } = found;
    this.#id = id;
    const names = found.approvals.map(({ by }) => by);
    assert.equal(new Set(names).size, names.length, "one person counts once");
    for (const name of this.#approvedBy) assert.ok(names.includes(name), `the approval of ${name} is there`);
    if (this.#isRejected) assert.equal(found.state, "rejected");
    const runs = await this.#rig.runsOf(id);
    assert.ok(runs.length <= 1, `used by ${runs.length} runs`);
    for (const run of this.#runs) assert.deepEqual([found.state, found.ended?.run_id, runs], ["used", run, [run]]);
    assert.equal(runs.length === 1 && found.state !== "used", false, "a run that is there has used it");
    if (found.state === "open") return await this.#checkOpen(REQUIRED - names.length);
    if (found.state === "approved") {
      assert.equal(names.length, REQUIRED);
      met.startedLater++;
      await this.#startLater();
    } else if (found.state === "used") {
      met.used++;
      if (runs.length === 0) met.without++;
    }
    await this.#requireRefused();
    assert.equal((await this.#rig.runsOf(id)).length, found.state === "approved" ? 1 : runs.length);
  }

  async #found(): Promise<ShownProposal | undefined> {
    const { items } = (await this.#rig.ask("ada", "GET", "/proposals?limit=100"))?.body ?? {};
    const found = (items as ShownProposal[]).filter(({ reason }) => reason === this.#reason);
    assert.ok(found.length <= 1, "proposed once");
    return found[0];
  }

  async #checkOpen(missing: number): Promise<void> {
    const refused = await this.#requireRefused();
    assert.equal(refused.details.missing, missing);
    const { status } = (await this.#rig.ask("ada", "DELETE", `/proposals/${this.#id}`)) ?? {};
    assert.equal(status, 204);
  }

  async #startLater(): Promise<void> {
    const reply = await this.#rig.ask("ada", "POST", "/run_command", { proposal: this.#id });
    assert.equal(reply?.status, 202, JSON.stringify(reply?.body));
    const run = await this.#rig.server.follow(this.#rig.bucket, reply?.body.run_id);
    assert.equal(run.status, "succeeded", String(run.error));
  }

  async #requireRefused() {
    const reply = await this.#rig.ask("ada", "POST", "/run_command", { proposal: this.#id });
    assert.deepEqual([reply?.status, reply?.body.error], [403, "approval_required"], JSON.stringify(reply?.body));
    return reply?.body;
  }

  async #approve(who: Person): Promise<void> {
    if ((await this.#asked(who, `/proposals/${this.#id}/approve`, {}))?.status === 200) this.#approvedBy.add(who);
  }

  async #reject(): Promise<void> {
    const reply = await this.#asked("eva", `/proposals/${this.#id}/reject`, { reason: "not today" });
    if (reply?.status === 200) this.#isRejected = true;
  }

  async #start(): Promise<void> {
    const reply = await this.#asked("ada", "/run_command", { proposal: this.#id });
    if (reply?.status === 202) this.#runs.add(reply.body.run_id);
    else if (reply) assert.ok([403, 409].includes(reply.status), JSON.stringify(reply.body));
  }

  async #asked(who: Person, target: string, body: unknown) {
    const reply = await this.#rig.ask(who, "POST", target, body);
    if (reply) this.#answers++;
    else this.unanswered++;
    this.#onAnswer();
    return reply;
  }

  #pick<T>(...values: readonly [T, ...T[]]): T {
    return values[Math.floor(this.#random() * values.length)] as T;
  }
}
