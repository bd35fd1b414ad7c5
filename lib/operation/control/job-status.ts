import type { CatalogJob } from "../../bucket/base/model.ts";
import { mapAll } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { isClosing, plainLines } from "../../core/plain-text.ts";
import { makeStatus } from "../../transport/ask/inspect.ts";
import { troubleOf } from "../base/outcome.ts";
import { type Control, type ControlState, versionsOf } from "./control-state.ts";

const AT_ONCE = 32;
const LIMIT_SECONDS = 60;
const KEEP_BYTES = 64 * 1024;
const SHOWN = { lines: 100, length: 400 };

/**
 * Asks a job for its status wherever that can be asked, all at once: a question needs no batches, waits for no other
 * target, and hooks for job_control, which may do anything, have no part in it.
 */
export async function askStatus(
  control: Control,
  { name }: CatalogJob,
  states: readonly ControlState[],
): Promise<void> {
  const { signal } = control.context;
  const asked = states.filter(({ outcome }) => outcome === "not_started");
  const ask = async (state: ControlState) => {
    const started = performance.now();
    try {
      await askOne(control, name, state);
      state.outcome = "ok";
    } catch (error) {
      throwIfCancelled(signal);
      const { grade, message } = troubleOf(error);
      Object.assign(state, { outcome: grade, error: message });
    }
    state.duration_ms = Math.round(performance.now() - started);
  };
  await mapAll(asked, AT_ONCE, ask, signal);
}

async function askOne(control: Control, job: string, state: ControlState): Promise<void> {
  const { context, fleet } = control;
  const { worker } = state.allocation;
  const outcome = await makeStatus(await fleet.reach(worker), job, {
    env: versionsOf(state),
    onLine: (line, stream) => context.log.output(job, worker, line, stream, { phase: "job_control", action: "status" }),
    keepBytes: KEEP_BYTES,
    timeoutMs: LIMIT_SECONDS * 1000,
    signal: context.signal,
  });
  throwIfCancelled(context.signal);
  const lines = plainLines(context.log.redactor.apply(outcome.stdout), SHOWN);
  state.status = { exit_code: outcome.exitCode, lines };
  if (outcome.reason === "timeout")
    throw new Failure("timeout", `\`make status\` did not end within ${LIMIT_SECONDS} s`);
  const last = lines.findLast((line) => !isClosing(line)) ?? lines.at(-1);
  if (outcome.exitCode !== 0)
    throw new Failure("failed", `exit code ${outcome.exitCode}: ${last ?? "it says nothing"}`);
}
