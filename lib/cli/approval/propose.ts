import { Failure } from "../../core/errors.ts";
import { isNote } from "../../core/shape.ts";
import type { RunKind, RunParams } from "../../run/protocol.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { toStderr } from "../base/terminal.ts";
import { openRemoteBucket, type RemoteBucket } from "../remote/remote-bucket.ts";
import { runOnServer } from "../remote/run.ts";
import { sayProposal, shownProposal } from "./proposals.ts";

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
  const made = await bucket.client.call("POST", bucket.path("/proposals"), { json: { ...wish, reason } });
  await sayProposal(await shownProposal(made), input);
  return EXIT.done;
}

function proposedReason({ values }: Parsed): string | undefined {
  const reason = values.get("reason");
  if (reason === undefined || isNote(reason)) return reason;
  throw new Failure("usage", "--reason: expected one line of at most 200 characters");
}
