import { described, type Infer, integer, list, nullable, object, oneOf, string, withExample } from "../core/shape.ts";

/** A time in a record or an answer. */
export const TIME = withExample(described(string(), "RFC 3339, UTC, with milliseconds"), "2026-05-04T12:00:00.000Z");

const COUNT = integer({ min: 0 });

const HOST_PROGRESS = object({
  worker: string(),
  action: string(),
  batch: described(COUNT, "0 where no batch takes it"),
  state: described(string(), "running, checking, restoring, or an outcome as in the result"),
});
/** How far one worker is in a rollout. */
export type HostProgress = Infer<typeof HOST_PROGRESS>;

const ROLLOUT_PROGRESS = object({
  job: string(),
  // What its batch does (`start`, `restart`, …); before the first batch `sync`.
  action: string(),
  // From 1 on; 0 before the first.
  batch: COUNT,
  batches: COUNT,
  gate: described(oneOf("", "pending", "passed", "failed"), "Of the batch; empty before it begins"),
  // Workers of the job that this deploy changes, and how many of them are at which point.
  workers: COUNT,
  done: COUNT,
  running: COUNT,
  failed: COUNT,
  hosts: described(list(HOST_PROGRESS), "In the order in which they are taken; of over 1,000 those at work or in trouble"),
});
/** How far the rollout of one job is. */
export type RolloutProgress = Infer<typeof ROLLOUT_PROGRESS>;

/** Why a run waits. `slot`: for its turn, because as much as may be is at work. */
const WAIT_REASONS = ["gate", "semaphore", "make", "sync", "connect", "command", "hook", "slot", "other"] as const;
/** One of {@link WAIT_REASONS}. */
export type WaitReason = (typeof WAIT_REASONS)[number];

const WAIT = object({
  on: described(string(), "In a few words; of over 200 waits those of a job for the same reason are one"),
  since: TIME,
  until: nullable(TIME),
  reason: oneOf(...WAIT_REASONS),
  job: nullable(string()),
  worker: described(nullable(string()), "null where several wait"),
  detail: string(),
  more: described(COUNT, "How many more waits are told with this one"),
});

const JOB_PROGRESS = object({
  job: string(),
  wave: COUNT,
  state: oneOf("waiting", "running", "changed", "ok", "failed", "not_started", "cancelled"),
  reason: described(string(), "Why it ended as it did, its first 200 characters; else empty"),
  duration_ms: nullable(COUNT),
});
/** How far one job is in a deploy. */
export type JobProgress = Infer<typeof JOB_PROGRESS>;

const WAVE_PROGRESS = object({
  wave: COUNT,
  jobs: COUNT,
  // Changed, or as it should be.
  done: COUNT,
  failed: COUNT,
  running: COUNT,
  not_started: COUNT,
  cancelled: COUNT,
});
/** How many jobs of a wave are at which point. */
export type WaveProgress = Infer<typeof WAVE_PROGRESS>;

const ALLOCATION_COUNTS = object({
  failed: COUNT,
  unreachable: COUNT,
  running: COUNT,
  changed: COUNT,
  waiting: COUNT,
  skipped: COUNT,
  cancelled: COUNT,
  disabled: COUNT,
});
/** How many allocations of a deploy are at which point. */
export type AllocationCounts = Infer<typeof ALLOCATION_COUNTS>;

/** How far a run is: shown in `GET …/runs/{id}`. */
export const PROGRESS = object({
  phase: string(),
  done: COUNT,
  total: COUNT,
  waiting: described(list(WAIT), "What the run waits for, since when, and until when at most; 200 at most"),
  rollouts: described(
    list(ROLLOUT_PROGRESS),
    "The jobs that a deploy is rolling out: the batch, and how many workers are at which point",
  ),
  waves: described(list(WAVE_PROGRESS), "Of a deploy, from its start: how many of its jobs are at which point"),
  jobs: described(list(JOB_PROGRESS), "Of a deploy, by wave: its first 1,000 jobs"),
  counts: described(nullable(ALLOCATION_COUNTS), "Of a deploy: its allocations; those that wait are not begun"),
  cancel: described(
    nullable(object({ confirmed: COUNT, total: COUNT })),
    "Since a cancel: how much of what the run waited for then is known to have ended",
  ),
});
/** The value of {@link PROGRESS}. */
export type Progress = Infer<typeof PROGRESS>;
/** The progress of a run that is no deploy has none of this. */
export const NO_DEPLOY: Pick<Progress, "rollouts" | "waves" | "jobs" | "counts"> = {
  rollouts: [],
  waves: [],
  jobs: [],
  counts: null,
};

/** The progress of a run that waits for a free slot. */
export function queuedSince(since: string): Progress {
  const slot = { on: "a free slot", since, until: null, reason: "slot", job: null, worker: null, detail: "", more: 0 } as const;
  return { phase: "queued", done: 0, total: 0, waiting: [slot], ...NO_DEPLOY, cancel: null };
}
