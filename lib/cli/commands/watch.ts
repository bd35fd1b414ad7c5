import type { CommandRow, Operand } from "../base/flags.ts";
import { STARTING } from "../base/start-flags.ts";
import { inBucket } from "./in-bucket.ts";

const SCHEDULE_NAME: Operand = { name: "name", help: "The schedule" };

const LIST: CommandRow = {
  name: "schedules list",
  summary: "Show what the server starts by itself: when it is due next, and what became of the last time",
  remote: async (input, target) => (await import("../remote/watch.ts")).listSchedules(input, target),
};

const HEALTH = inBucket({
  name: "health",
  summary: "Show how allocations and workers are, since when, and for how much of the last 90 days they were well",
  operands: [{ name: "job", help: "Only its allocations", optional: true }],
  work: async () => (await import("../state/status.ts")).showHealth,
});

const NOTIFY: CommandRow = {
  name: "notify list",
  summary: "Show who is told of what goes wrong, and the messages that have not arrived",
  remote: async (input, target) => (await import("../remote/watch.ts")).listMessages(input, target),
};
const NOTIFY_SECRET: Operand = { name: "key", help: "The key, as workspace/notify.json names it" };

const NOTIFY_COMMANDS: readonly CommandRow[] = [
  { ...NOTIFY, name: "notify" },
  NOTIFY,
  {
    name: "notify incidents",
    summary: "Show what is wrong, and what was",
    remote: async (input, target) => (await import("../remote/watch.ts")).listIncidents(input, target),
  },
  {
    name: "notify test",
    summary: "Send a test to a target now",
    operands: [{ name: "target", help: "A target of workspace/notify.json" }],
    remote: async (input, target) => (await import("../remote/watch.ts")).testTarget(input, target),
  },
  {
    name: "notify retry",
    summary: "Send a message again that failed or waits",
    operands: [{ name: "message", help: "Its id, or the beginning or end of it" }],
    remote: async (input, target) => (await import("../remote/watch.ts")).retryMessage(input, target),
  },
  inBucket({
    name: "notify set-secret",
    changes: true,
    summary: "Store a secret for workspace/notify.json; its value is read from stdin, or typed unseen",
    operands: [NOTIFY_SECRET],
    flags: [{ name: "ttl", value: "SECONDS", help: "Delete the secret after that time (default: never)" }],
    work: async () => (await import("../state/catalog.ts")).storeSecret,
  }),
  inBucket({
    name: "notify delete-secret",
    changes: true,
    summary: "Delete a secret for workspace/notify.json",
    operands: [NOTIFY_SECRET],
    work: async () => (await import("../state/catalog.ts")).removeSecret,
  }),
];

/** Commands about what a server does while nobody looks. */
export const WATCH_COMMANDS: readonly CommandRow[] = [
  HEALTH,
  ...NOTIFY_COMMANDS,
  { ...LIST, name: "schedules" },
  LIST,
  {
    name: "schedules run",
    summary: "Start the run of a schedule now, and follow it",
    operands: [SCHEDULE_NAME],
    flags: STARTING,
    remote: async (input, target) => (await import("../remote/watch.ts")).runSchedule(input, target),
  },
  {
    name: "schedules pause",
    summary: "Keep a schedule from starting, until it is resumed",
    operands: [SCHEDULE_NAME],
    remote: async (input, target) => (await import("../remote/watch.ts")).changeSchedule("pause", input, target),
  },
  {
    name: "schedules resume",
    summary: "Let a paused schedule go on with its next due time",
    operands: [SCHEDULE_NAME],
    remote: async (input, target) => (await import("../remote/watch.ts")).changeSchedule("resume", input, target),
  },
];
