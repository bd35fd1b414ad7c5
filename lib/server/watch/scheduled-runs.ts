import type { AccessStore } from "../../auth/access-store.ts";
import { busyFailure, heldBy } from "../../bucket/base/lock.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import type { Schedule } from "../../bucket/workspace/schedules.ts";
import { sleep } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { needsApproval } from "../../run/approval/proposal.ts";
import { parametersOf, type RunStatus } from "../../run/protocol.ts";
import { readRecordHead } from "../../run/record.ts";
import { newestOfSchedules } from "../../run/repeats.ts";
import type { Supervisor } from "../../run/supervisor.ts";
import type { AuditRecorder } from "../audit/recorder.ts";
import type { ReadThread } from "../beside.ts";
import type { Hold, Lines } from "../line.ts";
import { LINE_LOOK_MS, mayPass } from "../start.ts";
import type { ScheduledRuns } from "./scheduler.ts";

/** What the runs of schedules are started with. */
interface StartMeans {
  supervisor: Supervisor;
  lines: Lines;
  beside: ReadThread;
  access: Pick<AccessStore, "approvalsOf">;
  audit: Pick<AuditRecorder, "started">;
  /** Starts that wait end with `cancelled` when it is aborted. */
  signal: AbortSignal;
}

/** Starts the runs of schedules under the lock of their bucket and in its line, as requests do. */
export class LockedRuns implements ScheduledRuns {
  readonly #own: StartMeans;

  constructor(own: StartMeans) {
    this.#own = own;
  }

  async start(bucket: RootBucket, schedule: Schedule, due: number, check: () => Promise<void>): Promise<string> {
    const until = performance.now() + schedule.waitMs;
    const by = actorOfSchedule(schedule);
    // A key that no request can send: it would share the place, and could give it up.
    const waiting = { key: `schedule@${schedule.name}`, kind: schedule.kind, by, since: new Date().toISOString() };
    using place = schedule.waitMs > 0 ? this.#own.lines.enter(bucket.id, waiting) : undefined;
    const isIn = place?.position !== null;
    for (;;) {
      try {
        this.#requireNoApproval(bucket, schedule);
        await check();
        return await this.#once(bucket, schedule, due, isIn ? place : undefined);
      } catch (error) {
        const isGivenUp = isIn && place?.position === null;
        if (!mayPass(error) || isGivenUp || performance.now() >= until) {
          place?.leave();
          throw error;
        }
      }
      await sleep(LINE_LOOK_MS, this.#own.signal);
    }
  }

  recorded({ layout }: RootBucket): Promise<Map<string, { due: number; runId: string }>> {
    return newestOfSchedules(layout);
  }

  statusOf({ id, layout }: RootBucket, runId: string): RunStatus | undefined {
    return this.#own.supervisor.activeRun(id) === runId ? "running" : readRecordHead(layout, runId)?.status;
  }

  /** Nobody can approve what nobody has asked for. */
  #requireNoApproval({ id }: RootBucket, { kind, parameters }: Schedule): void {
    if (!needsApproval(kind, parameters) || this.#own.access.approvalsOf(id) === 0) return;
    throw new Failure("failed", `Cannot start ${kind}: the bucket needs approvals, and no schedule has one; propose it by hand`);
  }

  async #once({ id, layout }: RootBucket, schedule: Schedule, due: number, place: Hold | undefined): Promise<string> {
    const { name, kind } = schedule;
    const next = this.#own.lines.next(id);
    if (place ? place.position !== 1 : next) throw busyFailure(await heldBy(layout));
    const reservation = await this.#own.supervisor.reserve(layout, id, kind);
    try {
      if (place?.leave() === false) throw busyFailure();
      const params = parametersOf(kind, schedule.parameters);
      await this.#own.beside.ask("startable", layout, { kind, params });
      const ofSchedule = { name, due: new Date(due).toISOString() };
      const actor = actorOfSchedule(schedule);
      await this.#own.audit.started({ bucket: id, run: reservation.runId, kind, params, actor }, () =>
        reservation.start(params, { actor, requestId: null, schedule: ofSchedule }),
      );
      return reservation.runId;
    } catch (error) {
      await reservation.release();
      throw error;
    }
  }
}

/** Who asks for the runs of a schedule. */
function actorOfSchedule({ name }: Schedule) {
  return { name: `schedule:${name}`, address: "", via: "schedule" } as const;
}
