import { Failure } from "../../lib/core/errors.ts";
import type { Operation } from "../../lib/operation/base/context.ts";
import type { RunKind } from "../../lib/run/protocol.ts";
import type { TestBucket } from "./workspace.ts";

/** How an operation ended. */
export interface Ended {
  error: Failure | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: each operation has a result of its own.
  result: any;
  /** What it said in Activity. */
  text: string;
}

/** Carries out an operation in this process; its result is there whether it succeeded or failed. */
export async function carryOut(
  bucket: TestBucket,
  kind: RunKind,
  operation: Operation,
  params: Record<string, unknown> = {},
  options: { signal?: AbortSignal; secrets?: readonly string[] } = {},
): Promise<Ended> {
  const said = bucket.activity.length;
  const context = bucket.context(kind, options.signal);
  for (const secret of options.secrets ?? []) context.log.redactor.add(secret);
  let ended: Omit<Ended, "text">;
  try {
    ended = { result: await operation(context, params), error: undefined };
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    ended = { result: error.details, error };
  } finally {
    context.log.close();
  }
  return { ...ended, text: bucket.activity.slice(said).join("") };
}
