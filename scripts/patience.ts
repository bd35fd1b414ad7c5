import { availableParallelism, loadavg } from "node:os";

/** A machine that is busier than this does not get anything done, however long somebody waits. */
const MOST = 20;

/** How long to wait now for what takes at most `ms` on a quiet machine: longer by as much as the machine is overloaded. */
export function patience(ms: number): number {
  const [load = 0] = loadavg();
  return Math.ceil(ms * Math.min(MOST, Math.max(1, load / availableParallelism())));
}
