import type { Answer } from "../../server/routes/shapes.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { breakGlassOf, DETACH_FLAG, waitOf } from "../base/start-flags.ts";
import { ago, jsonText, printJson, printTable, shortId, shownTime, spanOf, toStdout } from "../base/terminal.ts";
import { namedAnswer, namedAnswers, openRemoteBucket, type RemoteBucket } from "../remote/remote-bucket.ts";
import { runOnServer } from "../remote/run.ts";

type Shown = Answer<"Schedule">;

/** `ops schedules list`. */
export async function listSchedules(input: Parsed, target: Target): Promise<number> {
  const items = await schedulesOf(await openRemoteBucket(target));
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) toStdout("nothing is scheduled; workspace/schedules.json says what is\n");
  else
    printTable(
      ["name", "kind", "when", "next", "last"],
      items.map((one) => [one.name, one.kind, whenOf(one), nextOf(one), lastOf(one)]),
    );
  return EXIT.done;
}

/** `ops schedules run <name>`: the same output and exit code as of the command of its kind. */
export async function runSchedule(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const name = input.operands[0] ?? "";
  const found = (await schedulesOf(bucket)).find((one) => one.name === name.toLowerCase());
  const { kind = "build", parameters = {} } = found ?? {};
  const request = { path: `/schedules/${encodeURIComponent(name)}/run`, json: {} };
  const view = wantsJson(input) ? ({ show: jsonText, meanwhile: "aside" } as const) : undefined;
  const isDetached = input.switches.has(DETACH_FLAG.name);
  const how = { view, waitMs: await waitOf(input), breakGlass: breakGlassOf(input), isDetached, request };
  return await runOnServer(bucket, kind, parameters, how);
}

/** `ops schedules pause <name>` and `ops schedules resume <name>`. */
export async function changeSchedule(change: "pause" | "resume", input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const path = bucket.path("/schedules", input.operands[0] ?? "", change);
  const found = await namedAnswer("Schedule", await bucket.client.call("POST", path, { json: {} }));
  if (wantsJson(input)) printJson(found);
  else toStdout(`${found.name}: ${nextOf(found)}\n`);
  return EXIT.done;
}

async function schedulesOf(bucket: RemoteBucket): Promise<Shown[]> {
  return await namedAnswers("Schedule", (await bucket.get("/schedules")).items);
}

function whenOf({ every_seconds, cron, timezone }: Shown): string {
  return every_seconds === null ? `${cron} ${timezone}` : `every ${spanOf(every_seconds * 1_000)}`;
}

function nextOf({ next, paused }: Shown): string {
  if (paused) return `paused ${ago(paused.at)} by ${paused.by}`;
  return next === null ? "never" : shownTime(next);
}

function lastOf({ last }: Shown): string {
  if (!last) return "-";
  const { due, outcome, reason, run_id, status } = last;
  const how = outcome === "started" ? (status ?? outcome) : `${outcome}: ${reason}`;
  return [`${how}, ${ago(due)}`, ...(run_id === null ? [] : [shortId(run_id)])].join(", ");
}
