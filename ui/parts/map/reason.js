// Why something failed: the line of the worker that tells so, and its place in the log.
import { get, queryOf, unless } from "../../base/api.js";

const TELLING = /\b(fatal|error|panic|denied|\w*refused|cannot|failed|invalid|no space|not found|no such)\b/i;
const OF_MAKE = /^make(\[\d+\])?: /;
const MOST_KNOWN = 200;

/** The line of a reason that says most: the first line is what ops says of it, make only repeats it. */
export function tellingLine(reason) {
  const whole = String(reason ?? "").trim();
  const [first, ...lines] = whole.split("\n");
  const own = lines.filter((line) => line.trim() !== "" && !OF_MAKE.test(line));
  return own.findLast((line) => TELLING.test(line)) ?? own.at(-1) ?? first;
}

/** The last lines of a place in a run, and which of them tells the reason. */
export async function readEvidence(page, { run_id: runId, job, worker }) {
  const none = { lines: [], reason_line: null };
  return runId ? await unless(get(page.path(`/runs/${runId}/evidence?${queryOf({ job, worker })}`)), none) : none;
}

/** Opens the log of what failed, at the line that tells why. */
export async function showReason(page, { run_id: runId, job, jobs = [], worker, workers: [first] = [worker] }) {
  const place = { job: job ?? jobs[0], worker: first };
  const found = (await readEvidence(page, { run_id: runId, ...place }).catch(() => null))?.reason_line;
  page.showRun(runId, { line: found, ...place });
}

/** The telling line as the log has it; where its lines have no places, as the allocation has it: a summary cuts it. */
async function wholeReason(page, { run_id, job, workers: [worker] }) {
  const { lines, reason_line: telling } = await readEvidence(page, { run_id, job, worker });
  const found = lines.find((one) => one.line === telling && one.job === job)?.text;
  // What a health check has found is no line of the log.
  if (found && TELLING.test(found)) return found;
  return tellingLine((await get(page.path(placeOf(job, worker)))).reason) || found;
}

/** The path of an allocation in the map. */
export function placeOf(job, worker) {
  return `/map/${encodeURIComponent(job)}/${encodeURIComponent(worker)}`;
}

/**
 * What tells why problems are there: at once what the summary says, then the line of the log, which is read once.
 * @param {any} page
 * @param {() => void} changed hears when a line was read
 */
export function reasonsOf(page, changed) {
  const known = new Map();
  return (one) => {
    const key = JSON.stringify([one.run_id, one.job, one.workers[0]]);
    if (known.has(key)) return known.get(key);
    if (known.size >= MOST_KNOWN) known.clear();
    known.set(key, tellingLine(one.reason));
    if (one.kind === "failed" && one.job && !one.aspect) read(one, key);
    return known.get(key);
  };

  async function read(one, key) {
    const text = await wholeReason(page, one).catch(() => undefined);
    if (!text || text === known.get(key)) return;
    known.set(key, text);
    changed();
  }
}
