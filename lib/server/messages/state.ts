import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { Layout } from "../../bucket/base/layout.ts";
import { MESSAGE_EVENTS } from "../../bucket/notify/notify.ts";
import { hasErrno } from "../../core/errors.ts";
import { namesIn, PRIVATE_FOLDER, readBounded, remove, writeAtomic } from "../../core/files.ts";
import { boolean, described, type Infer, integer, list, nullable, object, oneOf, string, valueIn } from "../../core/shape.ts";
import { TIME } from "../../run/progress.ts";

const EVENT = oneOf(...MESSAGE_EVENTS);

const GLANCE_FIELDS = {
  id: string(),
  event: EVENT,
  subject: described(string(), "One line"),
  reason: described(string(), "Why, masked"),
  job: described(nullable(string()), "null where it is about several, or none"),
  run_id: described(nullable(string()), "The run that found it first"),
  opened_at: TIME,
};
/** An open incident in a summary. */
export const INCIDENT_AT_A_GLANCE = object(GLANCE_FIELDS);

const INCIDENT_FIELDS = {
  ...GLANCE_FIELDS,
  checks: described(integer({ min: 1 }), "How many checks have found it so"),
  ends_at: described(nullable(TIME), "When the first of the certificates ends"),
  over_at: described(nullable(TIME), "null while it is open"),
};

/** Something that is wrong, with the places where it was found together. */
const INCIDENT = object({
  ...INCIDENT_FIELDS,
  places: list(string()),
  /** The places where it still is so. */
  left: list(string()),
  /** The targets that were told of it. */
  told: list(string()),
  /** Whoever was to be told of its end is told. */
  settled: boolean(),
});
/** The value of {@link INCIDENT}. */
export type Incident = Infer<typeof INCIDENT>;

/** An incident as the API shows it. */
export const SHOWN_INCIDENT = object({
  ...INCIDENT_FIELDS,
  places: described(list(string()), "Where it was found: the first 100, such as web@10.0.0.1"),
  place_count: integer({ min: 0 }),
  left_count: described(integer({ min: 0 }), "At how many of the places it still is so"),
  told: described(list(string()), "The targets that were, or are to be, told of it"),
});

/** A message, as it is kept and as the API shows it. Its text is made when it is sent. */
export const MESSAGE = object({
  id: described(string(), "The same in each attempt: receivers drop repeats by it"),
  at: TIME,
  event: described(EVENT, "`recovered` where it tells that the incident is over"),
  subject: string(),
  target: string(),
  incident: described(string(), "The id of the incident"),
  state: described(oneOf("waiting", "sent", "failed"), "failed: given up after a day"),
  attempts: integer({ min: 0 }),
  next_at: described(nullable(TIME), "When it is sent, or tried again, at the earliest; quiet hours come on top"),
  error: described(nullable(string()), "Why the last attempt failed"),
  sent_at: nullable(TIME),
});
/** The value of {@link MESSAGE}. */
export type Message = Infer<typeof MESSAGE>;

/** A target as the API shows it. */
export const SHOWN_TARGET = object({
  name: string(),
  kind: oneOf("webhook", "command"),
  address: described(
    string(),
    "Scheme, host and port of a webhook, or the name of the secret that holds it; the file of a command",
  ),
  body: string(),
  events: described(list(EVENT), "What it is told of; empty where no rule names it"),
  waiting: described(integer({ min: 0 }), "How many messages wait"),
  failed: described(integer({ min: 0 }), "How many were given up, of those that are kept"),
  last_sent_at: nullable(TIME),
});

const KEPT_STATE = object({
  /** The newest runs that were looked at. */
  runs: list(string()),
  /** The change of health that was looked at last. */
  change: integer(),
  incidents: list(INCIDENT),
  messages: list(MESSAGE),
});
/** What a server keeps of the incidents and messages of a bucket, oldest first. */
export type MessageState = Infer<typeof KEPT_STATE>;

/** Far more than the bounds on what is kept allow. */
const STATE_BYTES = 64 * 1024 * 1024;

/**
 * What was kept of a bucket; undefined for a bucket that was never looked at. What a killed server left half-written is
 * removed. A file that cannot be understood counts as none.
 */
export async function readMessageState(layout: Layout): Promise<MessageState | undefined> {
  for (const name of await namesIn(layout.messages)) if (name.endsWith(".tmp")) await remove(path.join(layout.messages, name));
  return await readKept(layout);
}

async function readKept(layout: Layout): Promise<MessageState | undefined> {
  const bytes = await readBounded(stateFile(layout), STATE_BYTES);
  return bytes && valueIn(KEPT_STATE, bytes.toString());
}

/** Events that no state of an allocation or a worker tells of. */
const ABOUT_RUNS: readonly string[] = ["run_failed", "snapshot_failed", "schedule_missed"];

/** The open incidents about runs, as a summary has them, newest first; how many messages wait, and how many were given up. */
export async function openAtAGlance(layout: Layout) {
  const { messages = [], incidents = [] } = (await readKept(layout)) ?? {};
  const count = (wanted: Message["state"]) => messages.filter(({ state }) => state === wanted).length;
  const open = incidents.filter(({ event, over_at }) => over_at === null && ABOUT_RUNS.includes(event));
  const shown = open.map(({ id, event, subject, reason, job, run_id, opened_at }) => {
    return { id, event, subject, reason, job, run_id, opened_at };
  });
  return { incidents: shown.toReversed(), messages: { waiting: count("waiting"), failed: count("failed") } };
}

/** Writes what {@link readMessageState} reads, whole or not at all. Makes no folder of a bucket that is gone. */
export async function writeMessageState(layout: Layout, text: string): Promise<void> {
  await mkdir(layout.messages, { mode: PRIVATE_FOLDER }).catch((error: unknown) => {
    if (!hasErrno(error, "EEXIST")) throw error;
  });
  await writeAtomic(stateFile(layout), text);
}

function stateFile(layout: Layout): string {
  return path.join(layout.messages, "state.json");
}
