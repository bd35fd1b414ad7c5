import { idNamed } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { isNote } from "../../core/shape.ts";
import type { Answer } from "../../server/routes/shapes.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { breakGlassOf, DETACH_FLAG, waitOf } from "../base/start-flags.ts";
import { factLines, jsonText, printJson, printTable, shortId, shownTime, toStderr, toStdout } from "../base/terminal.ts";
import { namedAnswer, namedAnswers, openRemoteBucket, type RemoteBucket } from "../remote/remote-bucket.ts";
import { runOnServer } from "../remote/run.ts";
import { parametersText } from "../state/runs.ts";

type ShownProposal = Answer<"Proposal">;

const PROPOSALS_PATH = "/proposals";
const HOSTS_SHOWN = 20;

/** `ops proposals`. */
export async function listProposals(input: Parsed, target: Target): Promise<number> {
  const all = await allProposals(await openRemoteBucket(target));
  const wanted = input.switches.has("all") ? all : all.filter((one) => !one.ended);
  if (wantsJson(input)) printJson(wanted);
  else if (wanted.length === 0) toStdout("nothing is proposed\n");
  else {
    const rows = wanted.map((one) => [
      one.id,
      one.kind,
      stateText(one),
      one.proposed_by,
      shownTime(one.proposed_at),
      whatOf(one),
    ]);
    printTable(["id", "kind", "state", "by", "proposed", "what"], rows);
  }
  return EXIT.done;
}

/** `ops proposals show <proposal>`. */
export async function showProposal(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const { id } = await namedProposal(bucket, input);
  const proposal = await shownProposal(await bucket.get(`${PROPOSALS_PATH}/${id}`));
  if (wantsJson(input)) printJson(proposal);
  else toStdout(factsOf(proposal));
  return EXIT.done;
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
  const waitMs = await waitOf(input);
  const breakGlass = breakGlassOf(input);
  const bucket = await openRemoteBucket(target);
  const { id, kind } = await namedProposal(bucket, input);
  const view = wantsJson(input) ? ({ show: jsonText, meanwhile: "aside" } as const) : undefined;
  const isDetached = input.switches.has(DETACH_FLAG.name);
  return await runOnServer(bucket, kind, { proposal: id }, { view, waitMs, breakGlass, isDetached });
}

/** An answer that is a proposal. */
export async function shownProposal(body: unknown): Promise<ShownProposal> {
  return await namedAnswer("Proposal", body);
}

/** Says what became of a proposal, and what to type next. */
export async function sayProposal(proposal: ShownProposal, input: Parsed, done?: string): Promise<void> {
  if (wantsJson(input)) printJson(proposal);
  else toStdout(done === undefined ? `${proposal.id}\n` : `proposal ${shortId(proposal.id)} is ${done}\n`);
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
