import type { HostProgress, RolloutProgress } from "../../run/protocol.ts";
import { type AllocationState, allocationGrade } from "./allocation-state.ts";
import type { JobPlan } from "./plan-job.ts";

/** Of a job on more workers only those at work or in trouble are told, and of these so many. */
const MOST_HOSTS = 1_000;
const SETTLED: readonly string[] = ["not_started", "changed", "ok", "skipped"];

/** A batch of a rollout as it begins; `sync` stands before the first one. */
type RolloutStep = Pick<RolloutProgress, "action" | "batch" | "batches" | "gate">;

/** Where the rollout of a job is and what goes on at each of its allocations; whoever wants to tell it asks for it. */
export class RolloutBoard {
  readonly #job: string;
  readonly #states: readonly AllocationState[];
  readonly #places: readonly (Omit<HostProgress, "state"> & { of: AllocationState })[];
  readonly #onChange: () => void;
  #step: RolloutStep = { action: "sync", batch: 0, batches: 0, gate: "" };

  /** `onChange` is called at every turn and whenever something begins or ends at an allocation. */
  constructor(plan: JobPlan, states: readonly AllocationState[], onChange: () => void) {
    this.#job = plan.job.name;
    this.#states = states;
    this.#places = placesOf(plan, states);
    this.#onChange = onChange;
  }

  /** The rollout has come to this. */
  step(change: Partial<RolloutStep>): void {
    this.#step = { ...this.#step, ...change };
    this.#onChange();
  }

  /** As long as the work lasts, it is what goes on at these allocations. */
  async during<T>(now: AllocationState["now"], states: readonly AllocationState[], work: () => Promise<T>): Promise<T> {
    for (const state of states) state.now = now;
    this.#onChange();
    try {
      return await work();
    } finally {
      for (const state of states) state.now = undefined;
      this.#onChange();
    }
  }

  /** What is told of it at this moment. */
  progress(): RolloutProgress {
    const changing = this.#states.filter(({ plan }) => plan.decision.action !== "skip");
    const count = (test: (state: AllocationState) => boolean) => changing.filter(test).length;
    return {
      job: this.#job,
      ...this.#step,
      workers: changing.length,
      done: count(({ now, done, trouble }) => now === undefined && done && trouble === undefined),
      running: count(({ now }) => now !== undefined),
      failed: count(({ trouble }) => trouble !== undefined),
      hosts: this.#hosts(),
    };
  }

  #hosts(): HostProgress[] {
    const hosts = this.#places.map(({ of, ...place }) => ({ ...place, state: of.now ?? allocationGrade(of) }));
    if (hosts.length <= MOST_HOSTS) return hosts;
    return hosts.filter(({ state }) => !SETTLED.includes(state)).slice(0, MOST_HOSTS);
  }
}

/** The allocations in the order in which they are taken; behind them, in batch 0, those that no batch takes. */
function placesOf({ phases }: JobPlan, states: readonly AllocationState[]) {
  const left = new Map(states.map((state) => [state.plan.allocation.worker, state]));
  const places = [];
  for (const { action, batches } of phases)
    for (const { index, workers } of batches)
      for (const worker of workers) {
        places.push({ worker, action, batch: index + 1, of: left.get(worker) as AllocationState });
        left.delete(worker);
      }
  for (const [worker, of] of left) places.push({ worker, action: of.plan.decision.action, batch: 0, of });
  return places;
}
