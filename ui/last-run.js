import { bucketPath, call, runsOf } from "./api.js";
import { el } from "./dom.js";
import { ago, status } from "./format.js";
import { nothing, part } from "./part.js";
import { progressOf } from "./progress.js";
import { resultOf } from "./results.js";
import { runLink } from "./starts.js";

const LOOKED_AT = 20;

/**
 * The newest run of a kind with its result, or `none` where there is none. `wanted` chooses among the runs of that kind,
 * `nameOf` says what the run is called, `controlsOf` gives what can be done about it.
 */
export function lastRunPart(bucketId, title, kind, none, options = {}) {
  const { wanted, nameOf = () => "Run", controlsOf = () => null, tools } = options;
  const draw = (run) => {
    if (run === null) return nothing(none);
    return [
      el("p", {}, status(run.status), " ", runLink(bucketId, run.id, nameOf(run)), ", ", ago(run.created_at)),
      run.error ? el("p", { class: "error" }, run.error) : null,
      run.status === "running" ? progressOf(run.progress) : null,
      controlsOf(run),
      run.result === null ? null : resultOf(run),
    ];
  };
  return part(title, () => newest(bucketId, kind, wanted), draw, { tools });
}

async function newest(bucketId, kind, wanted) {
  const runs = await runsOf(bucketId, kind, wanted ? LOOKED_AT : 1);
  const run = wanted ? runs.find(wanted) : runs[0];
  if (run?.status !== "running") return run ?? null;
  const {
    duration_ms: _,
    log_size_bytes: __,
    ...detail
  } = await call("GET", bucketPath(bucketId, `/runs/${run.id}`));
  return detail;
}
