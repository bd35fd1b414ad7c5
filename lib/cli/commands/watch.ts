import { AS_JSON, type Command, type Operand } from "../base/flags.ts";
import { BREAK_GLASS_FLAG, DETACH_FLAG, RESULT_AS_JSON, WAIT_FLAG } from "../base/start-flags.ts";
import { inBucket } from "./in-bucket.ts";

const SCHEDULE_NAME: Operand = { name: "name", help: "The schedule" };

const LIST: Command = {
  name: "schedules list",
  summary: "Show what the server starts by itself: when it is due next, and what became of the last time",
  flags: [AS_JSON],
  remote: async (input, target) => (await import("../watch/schedules.ts")).listSchedules(input, target),
};

const HEALTH = inBucket({
  name: "health",
  summary: "Show how allocations and workers are, since when, and for how much of the last 90 days they were well",
  operands: [{ name: "job", help: "Only its allocations", optional: true }],
  flags: [AS_JSON],
  work: async () => (await import("../state/health.ts")).showHealth,
});

const NOTIFY: Command = {
  name: "notify list",
  summary: "Show who is told of what goes wrong, and the messages that have not arrived",
  flags: [AS_JSON],
  remote: async (input, target) => (await import("../watch/notify.ts")).listMessages(input, target),
};
const NOTIFY_SECRET: Operand = { name: "key", help: "The key, as workspace/notify.json names it" };

const NOTIFY_COMMANDS: readonly Command[] = [
  { ...NOTIFY, name: "notify" },
  NOTIFY,
  {
    name: "notify incidents",
    summary: "Show what is wrong, and what was",
    flags: [AS_JSON],
    remote: async (input, target) => (await import("../watch/notify.ts")).listIncidents(input, target),
  },
  {
    name: "notify test",
    summary: "Send a test to a target now",
    operands: [{ name: "target", help: "A target of workspace/notify.json" }],
    flags: [AS_JSON],
    remote: async (input, target) => (await import("../watch/notify.ts")).testTarget(input, target),
  },
  {
    name: "notify retry",
    summary: "Send a message again that failed or waits",
    operands: [{ name: "message", help: "Its id, or the beginning or end of it" }],
    flags: [AS_JSON],
    remote: async (input, target) => (await import("../watch/notify.ts")).retryMessage(input, target),
  },
  inBucket({
    name: "notify set-secret",
    changes: true,
    summary: "Store a secret for workspace/notify.json; its value is read from stdin, or typed unseen",
    operands: [NOTIFY_SECRET],
    flags: [{ name: "ttl", value: "SECONDS", help: "Delete the secret after that time (default: never)" }, AS_JSON],
    work: async () => (await import("../state/catalog.ts")).storeSecret,
  }),
  inBucket({
    name: "notify delete-secret",
    changes: true,
    summary: "Delete a secret for workspace/notify.json",
    operands: [NOTIFY_SECRET],
    flags: [AS_JSON],
    work: async () => (await import("../state/catalog.ts")).removeSecret,
  }),
];

/** Commands about what a server does while nobody looks. */
export const WATCH_COMMANDS: readonly Command[] = [
  HEALTH,
  ...NOTIFY_COMMANDS,
  { ...LIST, name: "schedules" },
  LIST,
  {
    name: "schedules run",
    summary: "Start the run of a schedule now, and follow it",
    operands: [SCHEDULE_NAME],
    flags: [WAIT_FLAG, BREAK_GLASS_FLAG, DETACH_FLAG, RESULT_AS_JSON],
    remote: async (input, target) => (await import("../watch/schedules.ts")).runSchedule(input, target),
  },
  {
    name: "schedules pause",
    summary: "Keep a schedule from starting, until it is resumed",
    operands: [SCHEDULE_NAME],
    flags: [AS_JSON],
    remote: async (input, target) => (await import("../watch/schedules.ts")).changeSchedule("pause", input, target),
  },
  {
    name: "schedules resume",
    summary: "Let a paused schedule go on with its next due time",
    operands: [SCHEDULE_NAME],
    flags: [AS_JSON],
    remote: async (input, target) => (await import("../watch/schedules.ts")).changeSchedule("resume", input, target),
  },
];
