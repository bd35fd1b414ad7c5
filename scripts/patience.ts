import { availableParallelism, loadavg } from "node:os";

/** The longest wait, as a multiple: a machine that is busier than this gets nothing done. */
const MOST = 20;

/** The time to wait now for work that takes at most `ms` on a quiet machine: longer by the overload of this one. */
export function patience(ms: number): number {
  const [load = 0] = loadavg();
  return Math.ceil(ms * Math.min(MOST, Math.max(1, load / availableParallelism())));
}
