import type { AccessStore } from "../../auth/access-store.ts";
import type { Identity } from "../../auth/guard.ts";
import { covers } from "../../auth/role.ts";
import { currentRevision } from "../../bucket/source/revisions.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import {
  aged,
  closed,
  countedApprovals,
  lackingApproval,
  needsApproval,
  type Person,
  type Proposal,
  type ProposalBasis,
  type RunApproval,
  requireApproved,
  type Standing,
  used,
} from "../../run/approval/proposal.ts";
import {
  openedParams,
  pruneProposals,
  readProposal,
  readProposals,
  saveProposal,
  sealedParams,
} from "../../run/approval/store.ts";
import type { RunKind, RunParams } from "../../run/protocol.ts";
import { maskedText, readRecord } from "../../run/record.ts";
import type { ReadThread } from "../beside.ts";
import type { Lines } from "../line.ts";
import { isInReach } from "../people/permission.ts";

/** How many proposals may be open in a bucket, and how large their parameters may be. */
const MOST_OPEN = 50;
const MOST_CHARACTERS = 512 * 1024;
/** What `catalogBasis` throws where it cannot find what a proposal names: the proposal holds no more. */
const MOVED = ["plan_stale", "run_not_found", "unknown_name", "invalid_request"];

/** What a start says for itself: the proposal or the plan that it names, and whether it goes past the approval. */
export interface ApprovalAsked {
  proposal?: string | undefined;
  plan?: string | undefined;
  isGlassBroken: boolean;
}

/** An approval that a start has used. `giveBack` undoes that, where no run came of it. */
interface TakenApproval {
  approval: RunApproval;
  giveBack(): Promise<void>;
}

/** What is proposed. `params` are those of the run, checked. */
interface Wish {
  kind: RunKind;
  params: RunParams;
  reason: string | null;
}

/**
 * The proposals of the buckets, and what they are good for (control-plane.md, What holds a start back 2). The changes of one bucket come one
 * after the other; each is on the disk before it holds.
 */
export class Approvals {
  readonly #own: { access: AccessStore; lines: Lines; beside: ReadThread; now: () => number };

  constructor(own: { access: AccessStore; lines: Lines; beside: ReadThread; now: () => number }) {
    this.#own = own;
  }

  /** How many others must approve a run in a bucket. */
  required(bucketId: string): number {
    return this.#own.access.approvalsOf(bucketId);
  }

  /** What is known now, where it is asked how a proposal in a bucket stands. */
  standing(bucketId: string): Standing {
    const { access, now } = this.#own;
    const isEntitled = ({ token: id }: Person) => {
      const token = id === null ? undefined : access.byId(id);
      if (!token) return id === null;
      return (
        !access.isExpired(token) && covers(token.role, "deploy") && isInReach({ buckets: token.buckets ?? undefined }, bucketId)
      );
    };
    return { now: now(), isEntitled };
  }

  /** All proposals of a bucket as they are now, the newest first. */
  async all(bucket: RootBucket): Promise<Proposal[]> {
    return await this.#alone(bucket, async () => {
      const found: Proposal[] = [];
      for (const one of await readProposals(bucket.layout)) found.push(await this.#settled(bucket, one));
      return found;
    });
  }

  /** The proposal with this id, as it is now. Throws `proposal_not_found`. */
  async find(bucket: RootBucket, id: string): Promise<Proposal> {
    return await this.change(bucket, id, (proposal) => proposal);
  }

  /** Stores a proposal. Throws what is wrong with what it names, and `invalid_request` where there are too many. */
  async propose(bucket: RootBucket, { kind, params, reason }: Wish, by: Person): Promise<Proposal> {
    const { layout } = bucket;
    if (JSON.stringify(params).length > MOST_CHARACTERS)
      throw new Failure("invalid_request", `params: expected at most ${MOST_CHARACTERS} characters of JSON`);
    return await this.#alone(bucket, async () => {
      const open = (await pruneProposals(layout)).filter((one) => !aged(one, this.#own.now()).ended);
      if (open.length >= MOST_OPEN)
        throw new Failure("invalid_request", `${MOST_OPEN} proposals are open in this bucket; decide or withdraw one first`);
      const id = uuidV7();
      const { command } = params;
      const masked = typeof command === "string" ? { command: await maskedText(layout, command) } : {};
      const proposal: Proposal = {
        id,
        kind,
        params: { ...params, ...masked },
        ...(await this.#basis(bucket, { kind, params })),
        reason: reason === null ? null : await maskedText(layout, reason),
        sealed: await sealedParams(layout, id, params),
        proposed: { at: new Date(this.#own.now()).toISOString(), by },
        required: this.required(bucket.id),
        approvals: [],
        ended: null,
      };
      await saveProposal(layout, proposal);
      return proposal;
    });
  }

  /** Does something to a proposal and stores what becomes of it. Throws `proposal_not_found`, and what `act` throws. */
  async change(bucket: RootBucket, id: string, act: (proposal: Proposal, now: number) => Proposal): Promise<Proposal> {
    return await this.#alone(bucket, async () => {
      const found = await this.#settled(bucket, await existing(bucket, id));
      const next = act(found, this.#own.now());
      if (next !== found) await saveProposal(bucket.layout, next);
      return next;
    });
  }

  /** The parameters of a proposal that a start of this kind names. Throws `approval_required` where it has ended. */
  async paramsOf(bucket: RootBucket, kind: RunKind, id: string): Promise<RunParams> {
    const proposal = aged(await existing(bucket, id), this.#own.now());
    if (proposal.kind !== kind)
      throw new Failure("invalid_request", `proposal: ${quote(id)} is one of the kind ${proposal.kind}`);
    requireApproved(proposal, 0, this.standing(bucket.id));
    return await openedParams(bucket.layout, proposal);
  }

  /** Throws `approval_required` where a start must not begin now; uses nothing. */
  async mustHave(bucket: RootBucket, kind: RunKind, params: RunParams, asked: ApprovalAsked): Promise<void> {
    const required = this.#requiredFor(bucket, kind, params, asked);
    if (required > 0) await this.#alone(bucket, async () => void (await this.#named(bucket, kind, asked, required)));
  }

  /**
   * Uses the approval of a start whose bucket is taken, so that no other start can; undefined where the start needs none and
   * names none. Throws `approval_required`.
   */
  async take(
    bucket: RootBucket,
    start: { kind: RunKind; params: RunParams; runId: string; by: Identity },
    asked: ApprovalAsked,
  ): Promise<TakenApproval | undefined> {
    const { kind, params, runId, by } = start;
    const required = this.#requiredFor(bucket, kind, params, asked);
    if (required === 0 && asked.proposal === undefined) return undefined;
    return await this.#alone(bucket, async () => {
      const proposal = await this.#named(bucket, kind, asked, required);
      const standing = this.standing(bucket.id);
      await saveProposal(bucket.layout, used(proposal, { by: by.name, runId, required, ...standing }));
      const people = countedApprovals(proposal, standing).map((one) => one.by.name);
      const giveBack = async () => {
        if (!readRecord(bucket.layout, runId)) await this.#alone(bucket, () => saveProposal(bucket.layout, proposal));
      };
      return { approval: { proposal: proposal.id, required, by: people }, giveBack };
    });
  }

  #requiredFor({ id }: RootBucket, kind: RunKind, params: RunParams, { isGlassBroken }: ApprovalAsked): number {
    return needsApproval(kind, params) && !isGlassBroken ? this.required(id) : 0;
  }

  /** The approved proposal that a start names, by its id or its plan. Throws `approval_required` with what is missing. */
  async #named(bucket: RootBucket, kind: RunKind, { proposal: id, plan }: ApprovalAsked, required: number): Promise<Proposal> {
    const standing = this.standing(bucket.id);
    const candidates = id !== undefined ? [await existing(bucket, id)] : plan === undefined ? [] : await ofPlan(bucket, plan);
    let refusal: unknown = lackingApproval(kind, required, plan);
    for (const candidate of candidates) {
      const now = await this.#settled(bucket, candidate);
      try {
        requireApproved(now, required, standing);
        return now;
      } catch (error) {
        refusal = error;
      }
    }
    throw refusal;
  }

  /** A proposal as it is now: one that has expired, or whose basis has changed, ends for good. */
  async #settled(bucket: RootBucket, proposal: Proposal): Promise<Proposal> {
    const now = this.#own.now();
    const moved = aged(proposal, now).ended ? undefined : await this.#movedSince(bucket, proposal);
    const settled = moved === undefined ? aged(proposal, now) : closed(proposal, "stale", { by: null, why: moved, now });
    if (settled !== proposal) await saveProposal(bucket.layout, settled);
    return settled;
  }

  async #movedSince(bucket: RootBucket, proposal: Proposal): Promise<string | undefined> {
    try {
      const now = await this.#basis(bucket, proposal);
      if (now.revision !== proposal.revision) return "the source is another revision";
      if (now.build_seq !== proposal.build_seq) return "the bucket was built again";
      if (JSON.stringify(now.hosts) !== JSON.stringify(proposal.hosts)) return "it is about other workers now";
      await openedParams(bucket.layout, proposal);
      return undefined;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.code === "failed") return "its parameters cannot be opened: the key of the bucket is another one";
      if (!MOVED.includes(error.code)) throw error;
      return messageOf(error);
    }
  }

  async #basis({ layout }: RootBucket, { kind, params }: Pick<Wish, "kind" | "params">): Promise<ProposalBasis> {
    const found = await this.#own.beside.ask("basis", layout, { kind, params });
    return { revision: await currentRevision(layout), ...JSON.parse(Buffer.from(found).toString()) };
  }

  /** Nobody gives up in the middle of a change. No key of a start, whose name begins with the bucket, has this name. */
  async #alone<T>({ id }: RootBucket, work: () => Promise<T>): Promise<T> {
    return await this.#own.lines.alone(`proposals of ${id}`, NEVER, work);
  }
}

const NEVER = new AbortController().signal;

async function existing({ layout }: RootBucket, id: string): Promise<Proposal> {
  const found = await readProposal(layout, id.toLowerCase());
  if (!found) throw new Failure("proposal_not_found", `proposal ${quote(id)} does not exist`);
  return found;
}

/** The proposals of a plan, the one that was proposed first at the end. */
async function ofPlan({ layout }: RootBucket, plan: string): Promise<Proposal[]> {
  const isOfPlan = ({ kind, params }: Proposal) => kind === "deploy" && params.plan === plan;
  return (await readProposals(layout)).filter(isOfPlan);
}
