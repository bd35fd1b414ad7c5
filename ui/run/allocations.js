// The allocations of the catalog with their states, as lists show them.
import { listOf, queryOf, unless } from "../base/api.js";

/** The allocations of the catalog, at most `most`, with their states and the names of their workers. */
export async function readAllocations(page, query = {}, most = 5_000) {
  const all = await unless(listOf(page.path(`/cat/deployments?${queryOf({ limit: 1000, ...query })}`), most), []);
  const placed = all.filter(({ rollout }) => rollout !== "removed");
  const rows = placed.map((one) => ({ ...one, worker: one.worker_ip, state: stateOfAllocation(one) }));
  return Object.assign(rows, { cut: all.cut });
}

function stateOfAllocation({ rollout, gate, last_outcome: outcome, disabled }) {
  if (disabled) return "disabled";
  if (outcome === "failed" || outcome === "unreachable") return outcome;
  return rollout === "promoted" && /^(failed|pending)$/.test(gate) ? `health_${gate}` : rollout;
}
