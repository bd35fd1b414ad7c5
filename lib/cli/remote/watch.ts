import type { Answer } from "../../server/routes/shapes.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { startingOf } from "../base/start-flags.ts";
import { ago, type Columns, printAnswer, printList, shortId, spanOf, tableOf, toStderr } from "../base/terminal.ts";
import { type Item, namedAnswer, namedAnswers, openRemoteBucket, type RemoteBucket } from "./remote-bucket.ts";
import { runOnServer } from "./run.ts";

type ShownSchedule = Answer<"Schedule">;

/** `ops schedules list`. */
export async function listSchedules(input: Parsed, target: Target): Promise<number> {
  const items = await schedulesOf(await openRemoteBucket(target));
  return printList(input, items, "nothing is scheduled; workspace/schedules.json says what is", {
    name: ({ name }) => name,
    kind: ({ kind }) => kind,
    when: whenOf,
    next: nextDue,
    last: lastOf,
  });
}

/** `ops schedules run <name>`: the same output and exit code as of the command of its kind. */
export async function runSchedule(input: Parsed, target: Target): Promise<number> {
  const how = await startingOf(input);
  const bucket = await openRemoteBucket(target);
  const name = input.operands[0] ?? "";
  const found = (await schedulesOf(bucket)).find((one) => one.name === name.toLowerCase());
  const { kind = "build", parameters = {} } = found ?? {};
  const request = { path: `/schedules/${encodeURIComponent(name)}/run`, json: {} };
  return await runOnServer(bucket, kind, parameters, { ...how, request });
}

/** `ops schedules pause <name>` and `ops schedules resume <name>`. */
export async function changeSchedule(change: "pause" | "resume", input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const path = bucket.path("/schedules", input.operands[0] ?? "", change);
  const found = await namedAnswer("Schedule", await bucket.client.call("POST", path, { json: {} }));
  return printAnswer(input, found, `${found.name}: ${nextDue(found)}\n`);
}

async function schedulesOf(bucket: RemoteBucket): Promise<ShownSchedule[]> {
  return await namedAnswers("Schedule", (await bucket.get("/schedules")).items);
}

function whenOf({ every_seconds, cron, timezone }: ShownSchedule): string {
  return every_seconds === null ? `${cron} ${timezone}` : `every ${spanOf(every_seconds * 1_000)}`;
}

function nextDue({ next, paused }: ShownSchedule): string {
  return paused ? `paused ${ago(paused.at)} by ${paused.by}` : (next ?? "never");
}

function lastOf({ last }: ShownSchedule): string {
  if (!last) return "-";
  const { due, outcome, reason, run_id, status } = last;
  const how = outcome === "started" ? (status ?? outcome) : `${outcome}: ${reason}`;
  return [`${how}, ${ago(due)}`, ...(run_id === null ? [] : [shortId(run_id)])].join(", ");
}

type ShownMessage = Answer<"Message">;

/** `ops notify list`: the targets, and the messages that have not arrived. */
export async function listMessages(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const targets = await namedAnswers("MessageTarget", (await bucket.get("/messages/targets")).items);
  const messages = await namedAnswers("Message", await bucket.all("/messages"));
  const left = messages.filter(({ state }) => state !== "sent");
  return printAnswer(input, { targets, messages }, () => {
    const nobody = "nobody is told; workspace/notify.json says who is\n";
    const told = targets.length === 0 ? nobody : tableOf(targets, TARGET_COLUMNS);
    return left.length === 0 ? told : `${told}\n${tableOf(left, MESSAGE_COLUMNS)}`;
  });
}

const TARGET_COLUMNS: Columns<Answer<"MessageTarget">> = {
  target: ({ name }) => name,
  "goes to": ({ address }) => address,
  events: ({ events }) => shownEvents(events),
  waiting: ({ waiting }) => waiting,
  failed: ({ failed }) => failed,
  "last sent": ({ last_sent_at: at }) => at && ago(at),
};
const MESSAGE_COLUMNS: Columns<ShownMessage> = {
  message: ({ id }) => shortId(id),
  state: ({ state }) => state,
  target: ({ target }) => target,
  subject: ({ subject }) => subject,
  attempts: ({ attempts }) => attempts,
  next: ({ state, next_at }) => (state === "failed" || next_at === null ? "never" : next_at),
  error: ({ error }) => error,
};

/** `ops notify incidents`. */
export async function listIncidents(input: Parsed, target: Target): Promise<number> {
  const items = await namedAnswers("Incident", await (await openRemoteBucket(target)).all("/incidents"));
  return printList(input, items, "nothing was wrong", {
    since: ({ opened_at: at }) => at,
    until: ({ over_at: at }) => at ?? "open",
    what: ({ subject }) => subject,
    places: ({ place_count }) => place_count,
    told: ({ told }) => told.join(", "),
    run: ({ run_id }) => run_id && shortId(run_id),
  });
}

/** `ops notify test <target>`: exit code 1 where the target does not take it. */
export async function testTarget(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const [name = ""] = input.operands;
  const found = (await bucket.client.call("POST", bucket.path("/messages/test"), { json: { target: name } })) as TestAnswer;
  const isTaken = found.error === null;
  if (isTaken || wantsJson(input)) printAnswer(input, found, `${name} has taken message ${found.id}\n`);
  else toStderr(`${name} has not taken the test: ${found.error}\n`);
  return isTaken ? EXIT.done : EXIT.failed;
}

type TestAnswer = Item & { id: string; error: string | null };

/** `ops notify retry <message>`. */
export async function retryMessage(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const given = (input.operands[0] ?? "").toLowerCase();
  const ids = (await bucket.all("/messages")).map(({ id }) => String(id));
  const named = ids.filter((id) => id.startsWith(given) || id.endsWith(given));
  const id = named.length === 1 ? String(named[0]) : given;
  const path = bucket.path("/messages", id, "retry");
  const found = await namedAnswer("Message", await bucket.client.call("POST", path, { json: {} }));
  return printAnswer(input, found, `message ${shortId(found.id)} to ${found.target} is sent again\n`);
}

function shownEvents(events: readonly string[]): string {
  return events.length > 3 ? `${events.slice(0, 2).join(", ")} and ${events.length - 2} more` : events.join(", ") || "none";
}
