import { Failure } from "../../core/errors.ts";
import { isNote, quote } from "../../core/shape.ts";
import { BREAK_GLASS_FLAG, type Flag, type Parsed, wantsJson } from "./flags.ts";
import { jsonText, shortId } from "./terminal.ts";

/** Waits in line where the bucket is busy. */
export const WAIT_FLAG: Flag = {
  name: "wait",
  value: "TIME",
  mayLack: true,
  help: "Where the bucket is busy, wait in line until it is free, or for that time, such as 5m",
};
const LONGEST_WAIT_MS = 24 * 3_600_000;
/** Leaves a run on a server to itself. */
export const DETACH_FLAG: Flag = { name: "detach", help: "On a server: print the id of the run and end; the run goes on" };

/** The result in place of what the command shows otherwise. */
const RESULT_AS_JSON: Flag = { name: "json", help: "Print the result of the run as JSON; Activity goes to stderr" };

/** The flags of every command that starts a run. */
export const STARTING: readonly Flag[] = [WAIT_FLAG, BREAK_GLASS_FLAG, DETACH_FLAG, RESULT_AS_JSON];

/** Why a start goes past what holds it back; undefined where it does not. Throws `usage`. */
export function breakGlassOf({ values }: Parsed): string | undefined {
  const reason = values.get(BREAK_GLASS_FLAG.name);
  if (reason === undefined || isNote(reason)) return reason;
  throw new Failure("usage", "--break-glass: expected a reason, one line of at most 200 characters");
}

/** What a command says last where it went past what held its run back. */
export function brokenGlass(runId: string, reason: string): string {
  return `BREAK GLASS: run ${shortId(runId)} went past what holds runs back: ${reason}\n`;
}

/** What the flags of {@link STARTING} say of a start. */
export async function startOf(input: Parsed) {
  return { waitMs: await waitOf(input), breakGlass: breakGlassOf(input), isDetached: input.switches.has(DETACH_FLAG.name) };
}

/** The result of a run as JSON on stdout, and its Activity on stderr. */
export const JSON_VIEW = { show: jsonText, meanwhile: "aside" } as const;

/** How a run on a server is started and shown, as the flags of {@link STARTING} say. */
export async function startingOf(input: Parsed) {
  return { view: wantsJson(input) ? JSON_VIEW : undefined, ...(await startOf(input)) };
}

/** How long a run may wait for its bucket; undefined for not at all. */
export async function waitOf({ values, switches }: Parsed): Promise<number | undefined> {
  if (!switches.has(WAIT_FLAG.name)) return undefined;
  const text = values.get(WAIT_FLAG.name);
  const { parseDurationMs } = await import("../../codec/config/number.ts");
  const ms = text === undefined ? LONGEST_WAIT_MS : parseDurationMs(text);
  if (ms !== undefined && ms <= LONGEST_WAIT_MS) return ms;
  throw new Failure("usage", `--wait: expected a time up to 24h, such as 5m, 1h30m or 90s, found ${quote(text ?? "")}`);
}
