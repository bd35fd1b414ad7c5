import { Failure } from "../../core/errors.ts";
import type { RunKind, RunParams, RunSecrets } from "../../run/protocol.ts";
import { START_ROUTES } from "../../server/routes/start-paths.ts";
import { EXIT } from "../base/flags.ts";
import { brokenGlass } from "../base/start-flags.ts";
import { printJson, stopRequest, toStderr, toStdout } from "../base/terminal.ts";
import type { RunOptions } from "../bucket/bucket.ts";
import { activityPrinter, EXIT_OF, liveView, showResult } from "../bucket/output.ts";
import { type Follower, followRun, type StartRequest, startOnServer } from "./follow.ts";
import { namedAnswer, type RemoteBucket } from "./remote-bucket.ts";

/** How a command carries out a run on a server. */
interface RemoteRunOptions extends RunOptions {
  /** Print the id of the run and end. */
  isDetached?: boolean;
  /** Gets the id of the run. */
  onStarted?: ((id: string) => void) | undefined;
  /** How the run is asked for, where that is not the route of its kind. */
  request?: StartRequest;
}

/**
 * Carries out a run on a server and follows it: the same output and exit code as of a run here. An interrupt cancels the
 * run, a second one leaves it alone; the end of the terminal leaves it alone, too.
 */
export async function runOnServer(
  bucket: RemoteBucket,
  kind: RunKind,
  params: RunParams,
  { view, waitMs, secrets = {}, breakGlass, isDetached = false, onStarted, request }: RemoteRunOptions,
): Promise<number> {
  using stop = stopRequest(() => process.exit(EXIT.cancelled));
  const tell = (text: string) => toStderr(`${text}\n`);
  const print = activityPrinter(view, kind, params);
  using live = process.stderr.isTTY && process.env.TERM !== "dumb" && !isDetached ? liveView(process.stderr) : undefined;
  const above = (write: () => void) => (live ? live.above(write) : write());
  const follower: Follower = {
    ...stop,
    tell: (text) => above(() => tell(text)),
    output: (text) => above(() => print(text)),
    progress: live && ((progress) => live.update(progress)),
  };
  const asked = request ?? (await startRequest(bucket, kind, params, secrets));
  const id = await startOnServer(bucket, { ...asked, waitMs, breakGlass }, follower);
  onStarted?.(id);
  if (isDetached && !stop.signal.aborted) {
    // Activity is aside where JSON was asked for.
    if (view?.meanwhile === "aside") printJson({ run_id: id });
    else toStdout(`${id}\n`);
    return EXIT.done;
  }
  const { status, result, untold } = await followRun(bucket, id, follower);
  live?.[Symbol.dispose]();
  if (untold !== undefined) tell(`error: ${untold}`);
  const isShown = await showResult(view, result);
  if (breakGlass !== undefined) toStderr(brokenGlass(id, breakGlass));
  return isShown ? EXIT_OF[status] : EXIT_OF[status] || EXIT.failed;
}

/** The request that starts a run with these parameters. Jobs and snapshots stand in its path. */
async function startRequest(bucket: RemoteBucket, kind: RunKind, params: RunParams, secrets: RunSecrets): Promise<StartRequest> {
  const { jobs, snapshot, with_source: withSource, ...json } = params;
  const path = START_ROUTES[kind].path;
  if (path.includes("{name}")) {
    if (withSource === true)
      throw new Failure("usage", "--with-source: on a server the source comes with `ops push` and `ops push rollback` only");
    return { path: path.replace("{name}", encodeURIComponent(String(snapshot))), json: { ...json, ...secrets } };
  }
  if (!path.includes("{job}")) return { path, json: { ...params, ...secrets } };
  const named = Array.isArray(jobs) ? jobs : await jobsOf(bucket, String(params.retry_of));
  return { path: path.replace("{job}", named.map(encodeURIComponent).join(",")), json };
}

/** The jobs of an earlier run of job control. */
async function jobsOf(bucket: RemoteBucket, run: string): Promise<string[]> {
  const { jobs } = (await namedAnswer("RunDetail", await bucket.get(`/runs/${run}`))).params;
  if (Array.isArray(jobs)) return jobs.map(String);
  throw new Failure("retry_impossible", `Cannot repeat run ${run}: it is about no job`);
}
