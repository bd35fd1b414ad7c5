import { type LogLine, parseLogLine } from "../../bucket/base/logs.ts";
import { Failure } from "../../core/errors.ts";
import { linesOf } from "../../core/streams.ts";
import { EXIT, type Parsed, type Target } from "../base/flags.ts";
import { stopRequest } from "../base/terminal.ts";
import { printJobLogs, wantedJobLogs } from "../bucket/job-logs.ts";
import { printLogs, wantedLogs } from "../bucket/logs.ts";
import { openRemoteBucket } from "./remote-bucket.ts";

/** How long a server may look for the next line that matches. */
const SEARCH_MS = 600_000;

/** `ops logs` of a bucket on a server. */
export async function remoteLogs(input: Parsed, target: Target): Promise<number> {
  const { filter, tail } = wantedLogs(input);
  if (input.values.has("run-dir")) throw new Failure("usage", "--run-dir reads a folder here: give --local with it");
  const bucket = await openRemoteBucket(target);
  const pieces = bucket.stream("/logs", { ...filter, tail }, { silenceMs: SEARCH_MS });
  return await printLogs(input, entriesOf(linesOf(pieces)));
}

/** `ops logs <job>` on a server. */
export async function remoteJobLogs(input: Parsed, target: Target): Promise<number> {
  const { job, workers: worker, tail, follow } = wantedJobLogs(input);
  const bucket = await openRemoteBucket(target);
  using stop = stopRequest();
  void stop.insisted.then(() => process.exit(EXIT.cancelled));
  const path = `/jobs/${encodeURIComponent(job)}/logs`;
  const pieces = bucket.stream(path, { worker, tail, follow }, { signal: stop.signal });
  return await printJobLogs(input, linesOf(pieces), stop.signal);
}

async function* entriesOf(lines: AsyncIterable<string>): AsyncGenerator<LogLine> {
  for await (const text of lines) {
    const entry = parseLogLine(text);
    if (entry) yield { text, entry };
  }
}
