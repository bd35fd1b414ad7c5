import { statSync } from "node:fs";
import type { Layout } from "../../bucket/base/layout.ts";
import { certificatesEndingBy, type EndingCert } from "../../bucket/catalog/summary.ts";
import { type HealthChange, healthChangesAfter, notWellNow } from "../../bucket/health/health-history.ts";
import { builtNotify, type Notify } from "../../bucket/notify/notify.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import { MINUTE_IN_MS } from "../../codec/calendar/zone.ts";
import { Failure } from "../../core/errors.ts";
import { aged, countedApprovals } from "../../run/approval/proposal.ts";
import { readProposals } from "../../run/approval/store.ts";
import { type RunRecord, readRecord, runIds } from "../../run/record.ts";
import type { Supervisor } from "../../run/supervisor.ts";
import type { Approvals } from "../approval/approvals.ts";
import { databaseVersion, type Readers } from "../reading.ts";
import { readStates } from "../watch/schedule-state.ts";
import type { KnownNow } from "./findings.ts";
import { certificateMs } from "./incidents.ts";
import type { MessageState } from "./state.ts";

/** How many runs are remembered as looked at. A clock may be set back by as many runs. */
const MOST_RUNS = 200;
/** Behind every change of health: at the first look only what is not well now counts. */
const BEHIND_ALL = Number.MAX_SAFE_INTEGER;

/** What a look has found. */
export interface Look extends KnownNow {
  /** What notify.json says; undefined where the database could not be read. */
  notify: Notify | undefined;
  runs: string[];
  change: number;
  /** A run goes on: the next look has to come even if nothing else has changed. */
  isActive: boolean;
}

interface SourceMeans {
  supervisor: Pick<Supervisor, "activeRun">;
  approvals: Pick<Approvals, "required" | "standing">;
  readers: Pick<Readers, "read">;
  now: () => number;
}

/** What the database tells. */
interface Stored {
  notify: Notify;
  certs: EndingCert[];
  health: { unwell: HealthChange[]; changes: HealthChange[]; last: number } | undefined;
}

/** The records, the database and the files of a bucket: what a killed server has left is there, too. */
export class BucketSources {
  readonly #own: SourceMeans;
  readonly #begun: number;

  constructor(own: SourceMeans) {
    this.#own = own;
    this.#begun = own.now();
  }

  /** Another text as soon as there may be something new. */
  version({ id, layout }: RootBucket): string {
    const { runs, proposals, scheduleStates } = layout;
    const times = [runs, proposals, scheduleStates].map((place) => statSync(place, { throwIfNoEntry: false })?.mtimeMs);
    // Proposals and certificates also change with time.
    const minute = Math.floor(this.#own.now() / MINUTE_IN_MS);
    return [databaseVersion(layout), ...times, minute, this.#own.supervisor.activeRun(id)].join(" ");
  }

  /** What is new since a state was written; without a state, since the server began. */
  async look(bucket: RootBucket, state: MessageState | undefined): Promise<Look> {
    const { id, layout } = bucket;
    const { fresh, active, runs } = await newRuns(layout, state, this.#begun);
    const isActive = active.length > 0 || this.#own.supervisor.activeRun(id) !== null;
    const { notify, certs, health } = await this.#stored(layout, isActive ? undefined : (state?.change ?? BEHIND_ALL));
    return {
      ended: fresh,
      forced: [...fresh, ...active].filter(({ break_glass }) => typeof break_glass === "string"),
      health,
      certs,
      due: new Map([...readStates(layout)].flatMap(([name, { last: due }]) => (due ? [[name, due] as const] : []))),
      wanted: await this.#wanted(bucket),
      notify,
      runs,
      change: health?.last ?? state?.change ?? 0,
      isActive,
    };
  }

  /** What the database tells; of health what has changed behind a number. Nothing without a database of this program. */
  async #stored(layout: Layout, after: number | undefined): Promise<Partial<Stored>> {
    const now = this.#own.now();
    try {
      return await this.#own.readers.read(layout, (db) => {
        const notify = builtNotify(db);
        const health = after === undefined ? undefined : { unwell: notWellNow(db), ...healthChangesAfter(db, after) };
        return { notify, certs: certificatesEndingBy(db, now + certificateMs(notify)), health };
      });
    } catch (error) {
      const known = ["bucket_not_initialized", "schema_upgrade_required", "schema_too_new", "database_damaged"];
      if (error instanceof Failure && known.includes(error.code)) return {};
      throw error;
    }
  }

  async #wanted({ id, layout }: RootBucket) {
    const required = this.#own.approvals.required(id);
    const standing = this.#own.approvals.standing(id);
    const open = (await readProposals(layout)).map((one) => aged(one, standing.now)).filter(({ ended }) => !ended);
    return open.filter((one) => countedApprovals(one, standing).length < required);
  }
}

/**
 * The runs that have ended and were not looked at, oldest first, and those that go on. At the first look at a bucket only
 * what has ended since `begun` is new.
 */
async function newRuns(
  layout: Layout,
  state: MessageState | undefined,
  begun: number,
): Promise<{ fresh: RunRecord[]; active: RunRecord[]; runs: string[] }> {
  const ids = await runIds(layout);
  const known = new Set(state?.runs);
  const first = state?.runs[0] ?? "";
  const unknown = state ? ids.filter((id) => !known.has(id) && id > first) : ids.slice(-MOST_RUNS);
  const records = unknown.flatMap((id) => readRecord(layout, id) ?? []);
  const active = records.filter(({ status }) => status === "running");
  const isNew = ({ finished_at }: RunRecord) => state !== undefined || Date.parse(finished_at ?? "") >= begun;
  const fresh = records.filter((one) => one.status !== "running" && isNew(one));
  // Between the folder of a run and its record a run is not known yet: the next look has to read it, like one that goes on.
  const ended = new Set(records.filter((one) => !active.includes(one)).map(({ id }) => id));
  return { fresh, active, runs: ids.filter((id) => known.has(id) || ended.has(id)).slice(-MOST_RUNS) };
}
