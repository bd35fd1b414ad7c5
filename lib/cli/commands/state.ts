import { RUN_KINDS } from "../../run/protocol.ts";
import type { CommandRow, Flag, Operand } from "../base/flags.ts";
import { STARTING } from "../base/start-flags.ts";
import { inBucket } from "./in-bucket.ts";
import { RETRY_COMMAND } from "./run-command.ts";

const SOME_RUN: Operand = { name: "run", help: "Its id, or the beginning or end of it (default: the newest)", optional: true };
const ONE_RUN: Operand = { name: "run", help: "Its id, or the beginning or end of it" };
const TAIL: Flag = { name: "tail", value: "N", help: "Only the last lines, at most 1000" };
const REVISION: Operand = { name: "revision", help: "Its id, or the beginning or end of it" };
const STATUSES = ["running", "succeeded", "failed", "cancelled"];

const LIST_RUNS = inBucket({
  name: "runs list",
  summary: "Show the runs of the bucket, newest first",
  flags: [
    { name: "kind", value: "KIND", choices: RUN_KINDS, help: "Only runs of this kind, for example deploy" },
    { name: "status", value: "STATUS", choices: STATUSES, help: `Only runs with this status: ${STATUSES.join(", ")}` },
    { name: "limit", value: "N", help: "How many at most (default 20)" },
  ],
  work: async () => (await import("../state/runs.ts")).listRuns,
});

const LIST_REVISIONS = inBucket({
  name: "revisions list",
  summary: "Show the revisions that were pushed to the bucket, newest first",
  work: async () => (await import("../state/revisions.ts")).showRevisions,
});

/** Commands about the state of a bucket: how it is, its runs, its revisions, its key. */
export const STATE_COMMANDS: readonly CommandRow[] = [
  inBucket({
    name: "status",
    summary: "Show on one screen what is broken and what runs, the last deploy, drift, certificates near their end",
    work: async () => (await import("../state/status.ts")).statusCommand,
  }),
  { ...LIST_RUNS, name: "runs" },
  LIST_RUNS,
  inBucket({
    name: "runs show",
    summary: "Show a run: what was asked for, by whom, how it went, its result",
    operands: [SOME_RUN],
    flags: [{ name: "json", help: "Print the whole record as JSON" }],
    work: async () => (await import("../state/runs.ts")).showRun,
  }),
  inBucket({
    name: "runs follow",
    summary: "Print what a run says until it has ended; exit with the run's exit code",
    operands: [SOME_RUN],
    flags: [TAIL, { name: "json", help: "Print the whole record as JSON at the end; Activity goes to stderr" }],
    work: async () => (await import("../state/runs.ts")).followCommand,
  }),
  inBucket({
    name: "runs log",
    summary: "Print what a run has said so far",
    operands: [SOME_RUN],
    flags: [TAIL, { name: "json", help: "Print one JSON object a line, with time, job and worker" }],
    work: async () => (await import("../state/runs.ts")).printLog,
  }),
  inBucket({
    name: "runs cancel",
    summary: "Stop a run, wait for its end, and say what was confirmed to have ended",
    operands: [ONE_RUN],
    work: async () => (await import("../state/runs.ts")).cancelRun,
  }),
  RETRY_COMMAND,
  { ...LIST_REVISIONS, name: "revisions" },
  LIST_REVISIONS,
  inBucket({
    name: "revisions show",
    summary: "Show what is known of a revision",
    operands: [REVISION],
    work: async () => (await import("../state/revisions.ts")).showRevision,
  }),
  inBucket({
    name: "revisions diff",
    summary: "Show what the step from another revision to this one changes",
    operands: [REVISION, { name: "against", help: "The other revision (default: the current one)", optional: true }],
    work: async () => (await import("../state/revisions.ts")).showDifferences,
  }),
  {
    name: "revisions rollback",
    summary: "Roll the source of a bucket on a server back to a revision, as `ops push rollback` does",
    operands: [{ ...REVISION, help: `${REVISION.help} (default: the last successful one)`, optional: true }],
    flags: STARTING,
    remote: async (input, target) => (await import("../remote/push.ts")).rollBackTo(input, target),
  },
  inBucket({
    name: "ssh-key show",
    summary: "Show the public part of the key with which workers are reached",
    work: async () => (await import("../state/ssh-key.ts")).showSshKey,
  }),
  inBucket({
    name: "ssh-key set",
    changes: true,
    summary: "Store a private key with which workers are reached, in place of the one before",
    operands: [{ name: "file", help: "Its file, without a passphrase (default: stdin, or pasted unseen)", optional: true }],
    work: async () => (await import("../state/ssh-key.ts")).setSshKey,
  }),
  inBucket({
    name: "ssh-key create",
    changes: true,
    summary: "Make and store a key with which workers are reached, and print its line for authorized_keys",
    flags: [{ name: "force", help: "Replace a key that there is" }],
    work: async () => (await import("../state/ssh-key.ts")).createSshKey,
  }),
  inBucket({
    name: "ssh-key delete",
    changes: true,
    summary: "Remove the key with which workers are reached",
    work: async () => (await import("../state/ssh-key.ts")).deleteSshKey,
  }),
];
