import { explain } from "../../core/errors.ts";
import type { RunKind, RunParams } from "../../run/protocol.ts";
import { diffColours, hasColours, toStderr, toStdout } from "../base/terminal.ts";

/** Shows the result of a run on stdout once it has ended. */
export interface RunView {
  /** The text for a result, which is null where a run has none. May throw: the command then fails. */
  show(result: unknown): string | Promise<string>;
  /** Activity goes to stdout (`before`) or to stderr (`aside`); with `quiet` only its warnings and errors go to stderr. */
  meanwhile: "before" | "aside" | "quiet";
}

/** Prints Activity: failures on stderr, where scripts look for them, and the rest on stdout unless the view says otherwise. */
export function activityPrinter(view: RunView | undefined, kind: RunKind, params: RunParams): (text: string) => void {
  const hasDiffs = kind === "drift" || params.dry_run === true;
  const painted = hasDiffs && hasColours() ? diffColours : undefined;
  const { meanwhile = "before" } = view ?? {};
  return (text) => {
    if (meanwhile === "quiet" && !/^(error|warning): /.test(text)) return;
    const isAside = meanwhile !== "before" || text.startsWith("error: ");
    if (isAside) toStderr(text);
    else toStdout(text, painted);
  };
}

/** Shows the result of a run. Answers false, and says why on stderr, where the result cannot be shown. */
export async function showResult(view: RunView | undefined, result: unknown): Promise<boolean> {
  try {
    if (view) toStdout(await view.show(result));
    return true;
  } catch (error) {
    toStderr(`error: ${explain(error)}\n`);
    return false;
  }
}
