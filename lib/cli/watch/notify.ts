import type { Answer } from "../../server/routes/shapes.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { ago, printJson, printTable, shortId, shownTime, toStderr, toStdout } from "../base/terminal.ts";
import { type Item, namedAnswer, namedAnswers, openRemoteBucket } from "../remote/remote-bucket.ts";

type ShownMessage = Answer<"Message">;

/** `ops notify list`: the targets, and the messages that have not arrived. */
export async function listMessages(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const targets = await namedAnswers("MessageTarget", (await bucket.get("/messages/targets")).items);
  const messages = await namedAnswers("Message", await bucket.all("/messages"));
  if (wantsJson(input)) {
    printJson({ targets, messages });
    return EXIT.done;
  }
  if (targets.length === 0) toStdout("nobody is told; workspace/notify.json says who is\n");
  else
    printTable(
      ["target", "goes to", "events", "waiting", "failed", "last sent"],
      targets.map((one) => [
        ...[one.name, one.address, shownEvents(one.events), one.waiting, one.failed],
        one.last_sent_at === null ? "-" : ago(one.last_sent_at),
      ]),
    );
  const left = messages.filter(({ state }) => state !== "sent");
  if (left.length > 0) toStdout("\n");
  if (left.length > 0)
    printTable(
      ["message", "state", "target", "subject", "attempts", "next", "error"],
      left.map((one) => [...[shortId(one.id), one.state, one.target, one.subject, one.attempts], nextOf(one), one.error]),
    );
  return EXIT.done;
}

/** `ops notify incidents`. */
export async function listIncidents(input: Parsed, target: Target): Promise<number> {
  const items = await namedAnswers("Incident", await (await openRemoteBucket(target)).all("/incidents"));
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) toStdout("nothing was wrong\n");
  else
    printTable(
      ["since", "until", "what", "places", "told", "run"],
      items.map((one) => [
        ...[shownTime(one.opened_at), one.over_at === null ? "open" : shownTime(one.over_at), one.subject],
        ...[one.place_count, one.told.join(", "), one.run_id === null ? "-" : shortId(one.run_id)],
      ]),
    );
  return EXIT.done;
}

/** `ops notify test <target>`: exit code 1 where the target does not take it. */
export async function testTarget(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const [name = ""] = input.operands;
  const found = (await bucket.client.call("POST", bucket.path("/messages/test"), { json: { target: name } })) as TestAnswer;
  if (wantsJson(input)) printJson(found);
  else if (found.error === null) toStdout(`${name} has taken message ${found.id}\n`);
  else toStderr(`${name} has not taken the test: ${found.error}\n`);
  return found.error === null ? EXIT.done : EXIT.failed;
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
  if (wantsJson(input)) printJson(found);
  else toStdout(`message ${shortId(found.id)} to ${found.target} is sent again\n`);
  return EXIT.done;
}

function shownEvents(events: readonly string[]): string {
  return events.length > 3 ? `${events.slice(0, 2).join(", ")} and ${events.length - 2} more` : events.join(", ") || "none";
}

function nextOf({ state, next_at }: ShownMessage): string {
  return state === "failed" || next_at === null ? "never" : shownTime(next_at);
}
