import { createHash } from "node:crypto";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { readRegularSync } from "../../core/files.ts";
import type { Database } from "../base/database.ts";
import { type Layout, runLayout } from "../base/layout.ts";
import { catalogAllocations } from "./catalog.ts";
import { promotionsOf } from "./promotions.ts";

const MOST_NAMED = 10;

/** The inputs of a plan: while they are the same, a deploy carries out that plan. */
export interface PlanBasis {
  /** The number of the build that made the catalog. */
  build_seq: number;
  /** Raised by every deploy that had work. */
  update_seq: number;
  /** A digest of the newest version of every key in the KV store. */
  kv: string;
  /** `<job>@<worker>` to a digest of the promotion there and its outcome. */
  promoted: Record<string, string>;
}

/** What a plan made now would be made from. */
export function planBasis(db: Database): PlanBasis {
  const bucket = db.get<Pick<PlanBasis, "build_seq" | "update_seq">>("SELECT build_seq, update_seq FROM bucket");
  const keys = createHash("sha256");
  for (const row of db.all("SELECT namespace, key, MAX(version) FROM kv_version GROUP BY namespace, key"))
    keys.update(`${JSON.stringify(Object.values(row))}\n`);
  const promoted: PlanBasis["promoted"] = {};
  for (const [job, own] of Map.groupBy(catalogAllocations(db), (one) => one.job)) {
    const promotionOf = promotionsOf(db, job);
    for (const { id, worker } of own)
      promoted[`${job}@${worker}`] = digestOf({ id, ...promotionOf(id), files: null, before: null });
  }
  return { build_seq: 0, update_seq: 0, ...bucket, kv: keys.digest("hex"), promoted };
}

function digestOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex").slice(0, 32);
}

/**
 * The plan that a dry run left, as it was written. Throws `run_not_found` where the run left none, `plan_stale` with
 * what moved since (decisions: Rulings, a plan binds).
 */
export function validPlan(layout: Layout, db: Database, runId: string): { basis: PlanBasis } {
  const plan = readPlan(layout, runId);
  const moved = movedSince(plan.basis, planBasis(db));
  if (moved.length === 0) return plan;
  const message = `the plan of run ${runId} does not hold any more: ${moved.join("; ")}; plan again with a dry run`;
  throw new Failure("plan_stale", message, { details: { moved } });
}

function readPlan(layout: Layout, runId: string): { basis: PlanBasis } {
  try {
    if (isUuid(runId)) return JSON.parse(readRegularSync(runLayout(layout, runId).plan));
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENOTDIR")) throw error;
  }
  throw new Failure("run_not_found", `run ${runId} left no plan: name a dry run of deploy in this bucket`);
}

function movedSince(before: PlanBasis, now: PlanBasis): string[] {
  const moved: string[] = [];
  if (before.build_seq !== now.build_seq) moved.push("the bucket was built again");
  if (before.update_seq !== now.update_seq) moved.push("another deploy had work to do");
  if (before.kv !== now.kv) moved.push("keys were written");
  const places = [...new Set([...Object.keys(before.promoted), ...Object.keys(now.promoted)])];
  const others = places.filter((place) => before.promoted[place] !== now.promoted[place]).sort();
  if (others.length > 0) {
    const more = others.length > MOST_NAMED ? ` and ${others.length - MOST_NAMED} more` : "";
    moved.push(`what is promoted has changed on ${others.slice(0, MOST_NAMED).join(", ")}${more}`);
  }
  return moved;
}
