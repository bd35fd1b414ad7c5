import type { Identity } from "../../auth/guard.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import { wantedRevision } from "../../bucket/source/source.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { anything, check, described, object, oneOf, optional, type Shape } from "../../core/shape.ts";
import { invalidRequest, json } from "../../http/message.ts";
import {
  APPROVED_KINDS,
  approved,
  closed,
  countedApprovals,
  expiryOf,
  type Person,
  type Proposal,
} from "../../run/approval/proposal.ts";
import { parametersOf, type RunParams } from "../../run/protocol.ts";
import { ID, maskedText } from "../../run/record.ts";
import { bucketRoute, type Context } from "../context.ts";
import { requireRole } from "../people/permission.ts";
import { READ_FAILURES } from "../routes/catalog.ts";
import { type Answer, component, LABEL, PAGE, page, pageById } from "../routes/shapes.ts";

const ONE = "/proposals/{proposal_id}";
const FAILURES: readonly FailureCode[] = ["proposal_not_found", ...READ_FAILURES];
const PROPOSAL_ANSWER = component("Proposal");
const REASON = described(LABEL, "One line of at most 200 characters");

/** What is proposed in a bucket, and who approves it (control-plane.md, What holds a start back 2). */
export const PROPOSAL_ROUTES = [
  bucketRoute("GET /proposals", "read", {
    summary: "List the proposals of a bucket, newest first",
    description: "Of those that have ended the newest 100.",
    query: PAGE,
    answer: { status: 200, description: "A page of proposals", shape: page("Proposal") },
    failures: READ_FAILURES,
    async handle({ query, bucket }, context) {
      const { items, next_cursor } = await pageById(() => context.approvals.all(bucket), query);
      return json(200, { items: items.map((one) => shown(one, bucket, context)), next_cursor });
    },
  }),
  bucketRoute("POST /proposals", "deploy", {
    summary: "Propose a run, for others to approve",
    description:
      "`params` is the body of the request that would start the run. A deploy is proposed as its plan, `{plan: <dry run>}`, or " +
      "as a dry run with hooks. Names are checked as at a start.",
    body: object({
      kind: oneOf(...APPROVED_KINDS),
      params: described(anything({ type: "object" }) as Shape<RunParams>, "As in the body of the start"),
      reason: optional(REASON),
    }),
    answer: { status: 201, description: "The proposal", shape: PROPOSAL_ANSWER },
    failures: [...READ_FAILURES, "unknown_name", "run_not_found", "plan_stale", "revision_not_found"],
    async handle({ body: { kind, params, reason = null }, bucket }, context) {
      const wish = { kind, params: await wishedParams(bucket, kind, params), reason };
      return json(201, shown(await context.approvals.propose(bucket, wish, personOf(context.identity)), bucket, context));
    },
  }),
  bucketRoute(`GET ${ONE}`, "read", {
    summary: "Show a proposal",
    answer: { status: 200, description: "The proposal", shape: PROPOSAL_ANSWER },
    failures: FAILURES,
    handle: async ({ params, bucket }, context) =>
      json(200, shown(await context.approvals.find(bucket, idOf(params)), bucket, context)),
  }),
  bucketRoute(`POST ${ONE}/approve`, "deploy", {
    summary: "Approve a proposal",
    description: "Not for who has proposed it. An approval holds for a day; a second one of the same person renews the first.",
    body: object({}),
    answer: { status: 200, description: "The proposal", shape: PROPOSAL_ANSWER },
    failures: [...FAILURES, "proposal_ended"],
    async handle({ params, bucket }, context) {
      const by = personOf(context.identity);
      const act = (proposal: Proposal, now: number) => approved(proposal, by, now);
      return json(200, shown(await context.approvals.change(bucket, idOf(params), act), bucket, context));
    },
  }),
  bucketRoute(`POST ${ONE}/reject`, "deploy", {
    summary: "Reject a proposal, which ends it",
    body: object({ reason: REASON }),
    answer: { status: 200, description: "The proposal", shape: PROPOSAL_ANSWER },
    failures: [...FAILURES, "proposal_ended"],
    async handle({ params, body, bucket }, context) {
      const why = await maskedText(bucket.layout, body.reason);
      const by = context.identity.name;
      const act = (proposal: Proposal, now: number) => closed(proposal, "rejected", { by, why, now });
      return json(200, shown(await context.approvals.change(bucket, idOf(params), act), bucket, context));
    },
  }),
  bucketRoute(`DELETE ${ONE}`, "deploy", {
    summary: "Withdraw a proposal, which ends it",
    description: "For who has proposed it, and for admins.",
    answer: { status: 204, description: "It is withdrawn" },
    failures: [...FAILURES, "proposal_ended"],
    async handle({ params, bucket }, context) {
      const { identity } = context;
      const act = (proposal: Proposal, now: number) => {
        const isOwn = proposal.proposed.by.name.toLowerCase() === identity.name.toLowerCase();
        if (!isOwn) requireRole(identity, "admin");
        return closed(proposal, "withdrawn", { by: identity.name, why: null, now });
      };
      await context.approvals.change(bucket, idOf(params), act);
      return { status: 204 };
    },
  }),
];

/** The parameters of the run that is proposed, checked. Throws `invalid_request`. */
async function wishedParams({ layout }: RootBucket, kind: (typeof APPROVED_KINDS)[number], given: RunParams): Promise<RunParams> {
  if (kind === "rollback") {
    const { revision_id } = checkedRollback(given);
    return { revision: (await wantedRevision(layout, revision_id)).id };
  }
  const params: RunParams = parametersOf(kind, given);
  if (kind === "deploy" && params.plan === undefined && !(params.dry_run === true && params.with_hooks === true))
    throw new Failure("invalid_request", "params: a deploy is proposed as its plan: make a dry run, and name it as `plan`");
  if (kind === "deploy" && params.build === true) throw new Failure("invalid_request", "params: build first, then propose");
  return params;
}

const OF_ROLLBACK = object({ revision_id: optional(ID) });

function checkedRollback(given: RunParams) {
  const checked = check(OF_ROLLBACK, given);
  if (!checked.ok) throw invalidRequest(checked.problems);
  return checked.value;
}

function personOf({ name, token }: Identity): Person {
  return { name, token: token ?? null };
}

function idOf({ proposal_id = "" }: Readonly<Record<string, string>>): string {
  return proposal_id;
}

/** A proposal as the API shows it: without its sealed parameters, and with what its approvals are worth now. */
function shown(proposal: Proposal, { id }: RootBucket, { approvals }: Context): Answer<"Proposal"> {
  const { sealed: _, proposed, required: first, approvals: given, ended, ...asked } = proposal;
  const required = approvals.required(id);
  const counted = countedApprovals(proposal, approvals.standing(id));
  const missing = Math.max(0, required - counted.length);
  return {
    ...asked,
    proposed_at: proposed.at,
    proposed_by: proposed.by.name,
    state: ended?.how ?? (missing === 0 ? "approved" : "open"),
    required,
    required_first: first,
    missing: ended ? 0 : missing,
    approvals: given.map((one) => ({ at: one.at, by: one.by.name, counts: counted.includes(one) })),
    expires_at: new Date(expiryOf(proposal)).toISOString(),
    ended,
  };
}
