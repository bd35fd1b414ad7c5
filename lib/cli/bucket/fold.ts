import { isObject } from "../../core/shape.ts";
import { shortNames } from "../../core/short-names.ts";
import type { CommandResult } from "../../operation/control/run-command.ts";
import { visibleLines } from "../base/terminal.ts";

/** Workers on which a command had the same outcome and output. */
interface Fold {
  workers: string[];
  /** The outcome in words. */
  how: string;
  output: string;
}

/** Groups by outcome and output, the smallest group first; among equal sizes groups that succeeded come last. */
export function foldWorkers(results: readonly CommandResult[]): Fold[] {
  const groups = Map.groupBy(results, (result) =>
    JSON.stringify([result.outcome, reasonOf(result), result.output, result.output_sha256]),
  );
  const folds = [...groups.values()].map((same) => {
    const [first] = same as [CommandResult];
    const why = same.length === 1 ? first.error : reasonOf(first);
    const how = first.outcome.replace("_", " ") + (why === null ? "" : `: ${why}`);
    return { workers: same.map(({ worker }) => worker), how, output: first.output };
  });
  return folds.sort((a, b) => a.workers.length - b.workers.length || Number(a.how === "ok") - Number(b.how === "ok"));
}

/** The reason of a failure; null where it names its worker, since such reasons differ only in that name. */
function reasonOf({ worker, error }: CommandResult): string | null {
  return error?.includes(worker) ? null : error;
}

/** The text that `ops run_command --fold` prints; empty for a run without workers. */
export function foldedText(result: unknown): string {
  if (!isObject(result) || !Array.isArray(result.workers)) return "";
  const texts = foldWorkers(result.workers as CommandResult[]).map(({ workers, how, output }) => {
    const count = workers.length === 1 ? "" : ` (${workers.length} workers)`;
    return `--- ${shortNames(workers)}${count}: ${how}\n${output}`;
  });
  return visibleLines(texts.join(""));
}
