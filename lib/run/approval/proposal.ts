import { Failure } from "../../core/errors.ts";
import { anything, described, type Infer, integer, list, nullable, object, oneOf, type Shape, string } from "../../core/shape.ts";
import { TIME } from "../progress.ts";
import { RUN_KINDS, type RunKind, type RunParams } from "../protocol.ts";

/** The kinds of runs that others may have to approve. */
export const APPROVED_KINDS = ["deploy", "rollback", "hooks", "run_command"] as const satisfies RunKind[];
/** How long an approval holds, and how long a proposal waits for the next one. */
export const APPROVAL_MS = 24 * 3_600_000;

/**
 * Whether others have to approve a run where its bucket asks for approvals. A dry run changes nothing; one that runs hooks
 * is approved like them, since a script may do anything.
 */
export function needsApproval(kind: RunKind, { dry_run, with_hooks }: RunParams): boolean {
  const isApproved = (APPROVED_KINDS as readonly RunKind[]).includes(kind);
  return isApproved && (kind !== "deploy" || dry_run !== true || with_hooks === true);
}

const PERSON = object({ name: string(), token: nullable(string()) });
/** Somebody who proposes or decides. `token` is the id of their token; null for the server's own. */
export type Person = Infer<typeof PERSON>;

const ACT = object({ at: TIME, by: PERSON });

/** How a proposal can end. */
export const PROPOSAL_ENDS = ["used", "rejected", "withdrawn", "expired", "stale"] as const;

/** How a proposal has ended. Nothing follows on it. */
export const PROPOSAL_END = object({
  at: TIME,
  how: oneOf(...PROPOSAL_ENDS),
  by: described(nullable(string()), "Who ended it; null where nobody did"),
  why: described(nullable(string()), "The reason of a rejection, or what has changed since the proposal"),
  run_id: described(nullable(string()), "The run that has used it"),
});

/** What a proposal was made from: an approval holds only while all of it is the same. */
export const PROPOSAL_BASIS = {
  revision: described(nullable(string()), "The source revision; null where none is known"),
  build_seq: described(integer({ min: 0 }), "The number of the build that made the catalog"),
  hosts: described(list(string()), "The workers that the run is about"),
};
/** The values of {@link PROPOSAL_BASIS}. */
export type ProposalBasis = { [K in keyof typeof PROPOSAL_BASIS]: Infer<(typeof PROPOSAL_BASIS)[K]> };

/** What is proposed. */
export const PROPOSED = {
  id: string(),
  kind: oneOf(...(RUN_KINDS as [RunKind, ...RunKind[]])),
  // Never holds a secret.
  params: described(anything({ type: "object" }) as Shape<RunParams>, "The parameters of the run"),
  ...PROPOSAL_BASIS,
  reason: described(nullable(string()), "Why, as the proposer says"),
};

/** A proposal as it is kept. */
export const PROPOSAL = object({
  ...PROPOSED,
  // The parameters with their secrets; null once the proposal has ended.
  sealed: nullable(string()),
  proposed: ACT,
  // How many approvals the bucket asked for then.
  required: integer({ min: 0 }),
  // At most one of a person.
  approvals: list(ACT),
  ended: nullable(PROPOSAL_END),
});
/** The value of {@link PROPOSAL}. */
export type Proposal = Infer<typeof PROPOSAL>;

/** Who has approved a run. */
export const RUN_APPROVAL = object({
  proposal: string(),
  required: described(integer({ min: 0 }), "How many approvals the bucket asked for"),
  by: described(list(string()), "The names of those who approved it"),
});
/** The value of {@link RUN_APPROVAL}. */
export type RunApproval = Infer<typeof RUN_APPROVAL>;

/** What is known when it is asked how a proposal stands. */
export interface Standing {
  /** Milliseconds since 1970. */
  now: number;
  /** Whether somebody may start such a run in this bucket now. */
  isEntitled(person: Person): boolean;
}

/** When a proposal expires, in milliseconds since 1970: a day after the last that was done for it. */
export function expiryOf({ proposed, approvals }: Proposal): number {
  return Math.max(...[proposed, ...approvals].map(({ at }) => Date.parse(at))) + APPROVAL_MS;
}

/** The proposal as it is now: it may have expired. */
export function aged(proposal: Proposal, now: number): Proposal {
  const expiry = expiryOf(proposal);
  return now < expiry ? proposal : ended(proposal, "expired", { at: expiry });
}

/** The approvals that count: those of the last day, of people who may still start such a run, and none of the proposer. */
export function countedApprovals({ proposed, approvals }: Proposal, { now, isEntitled }: Standing): Proposal["approvals"] {
  return approvals.filter(({ at, by }) => now < Date.parse(at) + APPROVAL_MS && isEntitled(by) && !isSame(by, proposed.by));
}

/** One person has one name, however many tokens and sessions; names are compared as tokens are named. */
function isSame(a: Person, b: Person): boolean {
  return a.name.toLowerCase() === b.name.toLowerCase();
}

/** The proposal with the approval of somebody, which takes the place of an earlier one. Throws `forbidden` for the proposer. */
export function approved(proposal: Proposal, by: Person, now: number): Proposal {
  const open = requireOpen(aged(proposal, now));
  if (isSame(by, open.proposed.by))
    throw new Failure("forbidden", `${by.name} has proposed this: somebody else has to approve it`);
  const others = open.approvals.filter((one) => !isSame(one.by, by));
  return { ...open, approvals: [...others, { at: new Date(now).toISOString(), by }] };
}

/** The proposal once somebody has rejected or withdrawn it, or something that it was made from has changed. */
export function closed(
  proposal: Proposal,
  how: "rejected" | "withdrawn" | "stale",
  { by, why, now }: { by: string | null; why: string | null; now: number },
): Proposal {
  return ended(requireOpen(aged(proposal, now)), how, { at: now, by, why });
}

/** The proposal once a run has used it. Throws `approval_required` where it has ended, or too few approve it. */
export function used(
  proposal: Proposal,
  { by, runId, required, ...standing }: Standing & { by: string; runId: string; required: number },
): Proposal {
  requireApproved(proposal, required, standing);
  return ended(proposal, "used", { at: standing.now, by, run_id: runId });
}

/** Throws `approval_required`, with what is missing, where a run must not use the proposal now. */
export function requireApproved(proposal: Proposal, required: number, standing: Standing): void {
  const now = aged(proposal, standing.now);
  if (now.ended)
    throw lacking(`proposal ${shortProposalId(now.id)} ${endText(now.ended)}; propose it anew`, required, { proposal });
  const given = countedApprovals(now, standing).length;
  if (given >= required) return;
  const people = [now.proposed, ...countedApprovals(now, standing)].map((one) => one.by.name);
  const what = `proposal ${shortProposalId(now.id)} lacks ${required - given} of ${required === 1 ? "1 approval" : `${required} approvals`}`;
  const how = `somebody other than ${people.join(" and ")} types \`ops approve ${shortProposalId(now.id)}\``;
  throw lacking(`${what}: ${how}`, required, { proposal, given });
}

/** The failure of a start that lacks approvals. */
function lacking(
  message: string,
  required: number,
  { proposal, given = 0 }: { proposal?: Proposal; given?: number } = {},
): Failure {
  const details = { required, given, missing: Math.max(0, required - given), proposal: proposal?.id ?? null };
  return new Failure("approval_required", message, { details });
}

/** The failure of a start that names no proposal; `plan` is the one that it would carry out. */
export function lackingApproval(kind: RunKind, required: number, plan?: string): Failure {
  const people = required === 1 ? "the approval of another person" : `the approval of ${required} other people`;
  const command = `ops propose ${kind}${plan === undefined ? "" : ` --plan ${plan}`}`;
  return lacking(`${kind} in this bucket needs ${people}: \`${command}\` asks for it`, required);
}

function requireOpen(proposal: Proposal): Proposal {
  if (!proposal.ended) return proposal;
  throw new Failure("proposal_ended", `proposal ${shortProposalId(proposal.id)} ${endText(proposal.ended)}`);
}

function endText({ how, by, why, run_id }: NonNullable<Proposal["ended"]>): string {
  if (how === "used") return `was used by run ${run_id}`;
  if (how === "expired") return "has expired";
  if (how === "stale") return `does not hold any more: ${why}`;
  return `was ${how} by ${by}${why === null ? "" : `: ${why}`}`;
}

/** A proposal that has ended keeps its end, and its secrets no longer. */
function ended(
  proposal: Proposal,
  how: NonNullable<Proposal["ended"]>["how"],
  { at, by = null, why = null, run_id = null }: { at: number; by?: string | null; why?: string | null; run_id?: string | null },
): Proposal {
  if (proposal.ended) return proposal;
  return { ...proposal, sealed: null, ended: { at: new Date(at).toISOString(), how, by, why, run_id } };
}

/** An id as people type it. */
function shortProposalId(id: string): string {
  return id.slice(-8);
}
