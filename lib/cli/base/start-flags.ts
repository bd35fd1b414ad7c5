import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import type { Flag, Parsed } from "./flags.ts";

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
export const RESULT_AS_JSON: Flag = { name: "json", help: "Print the result of the run as JSON; Activity goes to stderr" };

/** How long a run may wait for its bucket; undefined for not at all. */
export async function waitOf({ values, switches }: Parsed): Promise<number | undefined> {
  if (!switches.has(WAIT_FLAG.name)) return undefined;
  const text = values.get(WAIT_FLAG.name);
  const { parseDurationMs } = await import("../../codec/config/number.ts");
  const ms = text === undefined ? LONGEST_WAIT_MS : parseDurationMs(text);
  if (ms !== undefined && ms <= LONGEST_WAIT_MS) return ms;
  throw new Failure("usage", `--wait: expected a time up to 24h, such as 5m, 1h30m or 90s, found ${quote(text ?? "")}`);
}
