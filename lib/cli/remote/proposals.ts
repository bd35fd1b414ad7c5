import { idNamed } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { isNote } from "../../core/shape.ts";
import type { RunKind, RunParams } from "../../run/protocol.ts";
import type { Answer } from "../../server/routes/shapes.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { startingOf } from "../base/start-flags.ts";
import { factLines, printAnswer, printList, shortId, toStderr, toStdout } from "../base/terminal.ts";
import { parametersText } from "../state/runs.ts";
import { namedAnswer, namedAnswers, openRemoteBucket, type RemoteBucket } from "./remote-bucket.ts";
import { runOnServer } from "./run.ts";

type ShownProposal = Answer<"Proposal">;

const PROPOSALS_PATH = "/proposals";
const HOSTS_SHOWN = 20;

/** `ops proposals`. */
export async function listProposals(input: Parsed, target: Target): Promise<number> {
  const all = await allProposals(await openRemoteBucket(target));
  const wanted = input.switches.has("all") ? all : all.filter((one) => !one.ended);
  return printList(input, wanted, "nothing is proposed", {
    id: ({ id }) => id,
    kind: ({ kind }) => kind,
    state: stateText,
    by: ({ proposed_by }) => proposed_by,
    proposed: ({ proposed_at }) => proposed_at,
    what: whatOf,
  });
}

/** `ops proposals show <proposal>`. */
export async function showProposal(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const { id } = await namedProposal(bucket, input);
  const proposal = await shownProposal(await bucket.get(`${PROPOSALS_PATH}/${id}`));
  return printAnswer(input, proposal, () => factsOf(proposal));
}

/** `ops approve <proposal>`: shows what was approved. */
export async function approveProposal(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const { id } = await namedProposal(bucket, input);
  const approved = await shownProposal(
    await bucket.client.call("POST", bucket.path(PROPOSALS_PATH, id, "approve"), { json: {} }),
  );
  if (!wantsJson(input)) toStdout(`${factsOf(approved)}\n`);
  await sayProposal(approved, input, "approved");
  return EXIT.done;
}

/** `ops reject <proposal> --reason TEXT`. */
export async function rejectProposal(input: Parsed, target: Target): Promise<number> {
  const reason = input.values.get("reason");
  if (reason === undefined || !isNote(reason))
    throw new Failure("usage", "--reason: expected why it is rejected, one line of at most 200 characters");
  const bucket = await openRemoteBucket(target);
  const { id } = await namedProposal(bucket, input);
  const rejected = await shownProposal(
    await bucket.client.call("POST", bucket.path(PROPOSALS_PATH, id, "reject"), { json: { reason } }),
  );
  await sayProposal(rejected, input, "rejected");
  return EXIT.done;
}

/** `ops withdraw <proposal>`. */
export async function withdrawProposal(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const { id } = await namedProposal(bucket, input);
  await bucket.client.call("DELETE", bucket.path(PROPOSALS_PATH, id));
  await sayProposal(await shownProposal(await bucket.get(`${PROPOSALS_PATH}/${id}`)), input, "withdrawn");
  return EXIT.done;
}

/** `ops proposals start <proposal>`: starts the run and follows it, as the command of its kind does. */
export async function startProposal(input: Parsed, target: Target): Promise<number> {
  const how = await startingOf(input);
  const bucket = await openRemoteBucket(target);
  const { id, kind } = await namedProposal(bucket, input);
  return await runOnServer(bucket, kind, { proposal: id }, how);
}

/** An answer that is a proposal. */
async function shownProposal(body: unknown): Promise<ShownProposal> {
  return await namedAnswer("Proposal", body);
}

/** Says what became of a proposal, and what to type next. */
async function sayProposal(proposal: ShownProposal, input: Parsed, done?: string): Promise<void> {
  printAnswer(input, proposal, done === undefined ? `${proposal.id}\n` : `proposal ${shortId(proposal.id)} is ${done}\n`);
  const next = nextStep(proposal);
  if (next !== undefined) toStderr(`${next}\n`);
}

function nextStep({ id, ended, missing }: ShownProposal): string | undefined {
  if (ended) return undefined;
  if (missing === 0) return `it is approved: \`ops proposals start ${shortId(id)}\` starts it`;
  return `it lacks ${counted(missing, "approval")}: somebody else types \`ops approve ${shortId(id)}\``;
}

async function allProposals(bucket: RemoteBucket): Promise<ShownProposal[]> {
  return await namedAnswers("Proposal", await bucket.all(PROPOSALS_PATH));
}

/** The proposal that the first operand names. Throws `proposal_not_found`. */
async function namedProposal(bucket: RemoteBucket, { operands: [given = ""] }: Parsed): Promise<ShownProposal> {
  const all = await allProposals(bucket);
  const ids = all.map(({ id }) => id);
  const id = idNamed(given, ids, "proposal");
  return all.find((one) => one.id === id) as ShownProposal;
}

function stateText({ state, missing, required }: ShownProposal): string {
  return state === "open" ? `${required - missing} of ${required} approved` : state;
}

/** What would run, in a few words. */
function whatOf({ params, hosts }: ShownProposal): string {
  const { command, plan, hook, job, revision } = params;
  const told = [command, plan && `plan ${shortId(String(plan))}`, hook, job, revision && `revision ${shortId(String(revision))}`];
  const words = told.flatMap((one) => (typeof one === "string" ? (one.trim().split("\n")[0] ?? "") : []));
  return [...words, counted(hosts.length, "worker")].join("; ");
}

function factsOf(proposal: ShownProposal): string {
  const { id, kind, hosts, params, ended, approvals, missing, required, required_first: first } = proposal;
  const names = hosts.slice(0, HOSTS_SHOWN).join(", ");
  const given = approvals.map(({ by, at, counts }) => `${by}, ${at}${counts ? "" : " (does not count any more)"}`);
  return factLines([
    ["proposal", id],
    ["kind", kind],
    ["state", stateText(proposal)],
    ["parameters", parametersText(params)],
    ["plan", typeof params.plan === "string" ? `ops runs log ${shortId(params.plan)} shows it` : null],
    ["workers", hosts.length > HOSTS_SHOWN ? `${names} and ${hosts.length - HOSTS_SHOWN} more` : names],
    ["revision", proposal.revision],
    ["reason", proposal.reason],
    ["proposed by", `${proposal.proposed_by}, ${proposal.proposed_at}`],
    ["approved by", given.join("\n")],
    [
      "lacks",
      ended
        ? null
        : `${missing} of ${counted(required, "approval")}${required === first ? "" : ` (${first} when it was proposed)`}`,
    ],
    ["ends", ended ? `${ended.how} ${ended.at}${ended.by === null ? "" : ` by ${ended.by}`}` : proposal.expires_at],
    ["why", ended?.why ?? null],
    ["run", ended?.run_id ?? null],
  ]);
}

/** What is asked for: a kind of run and the body of the request that would start it. */
interface Wish {
  kind: RunKind;
  params: RunParams;
}

/**
 * `ops propose …`: prints the id of the proposal. A deploy is proposed as its plan: where none is named, a dry run makes
 * one, and is shown. Where that fails nothing is proposed, and the exit code is that of the dry run.
 */
export async function propose(bucket: RemoteBucket, { kind, params }: Wish, input: Parsed): Promise<number> {
  const reason = proposedReason(input);
  if (kind !== "deploy" || params.plan !== undefined || params.with_hooks === true)
    return await proposed(bucket, { kind, params }, reason, input);
  if (params.build === true) throw new Failure("usage", "--build does not go with a proposal: build first, with `ops build`");
  let plan: string | undefined;
  const view = wantsJson(input) ? ({ show: () => "", meanwhile: "aside" } as const) : undefined;
  const onStarted = (id: string) => {
    plan = id;
  };
  const code = await runOnServer(bucket, kind, { ...params, dry_run: true }, { view, onStarted });
  if (code === EXIT.done) return await proposed(bucket, { kind, params: { plan } }, reason, input);
  toStderr("nothing is proposed\n");
  return code;
}

/** `ops propose rollback [revision]`. */
export async function proposeRollback(input: Parsed, target: Target): Promise<number> {
  const reason = proposedReason(input);
  const bucket = await openRemoteBucket(target);
  const [given] = input.operands;
  const params = given === undefined ? {} : { revision_id: await bucket.revisionNamed(given) };
  return await proposed(bucket, { kind: "rollback", params }, reason, input);
}

async function proposed(bucket: RemoteBucket, wish: Wish, reason: string | undefined, input: Parsed): Promise<number> {
  const made = await bucket.client.call("POST", bucket.path(PROPOSALS_PATH), { json: { ...wish, reason } });
  await sayProposal(await shownProposal(made), input);
  return EXIT.done;
}

function proposedReason({ values }: Parsed): string | undefined {
  const reason = values.get("reason");
  if (reason === undefined || isNote(reason)) return reason;
  throw new Failure("usage", "--reason: expected one line of at most 200 characters");
}
