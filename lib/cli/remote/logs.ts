import { type LogLine, parseLogLine } from "../../bucket/base/logs.ts";
import { sleep } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { linesOf } from "../../core/streams.ts";
import { EXIT, type Parsed, type Target } from "../base/flags.ts";
import { stopRequest, toStderr } from "../base/terminal.ts";
import { printJobLogs, printLogs, wantedJobLogs, wantedLogs } from "../bucket/logs.ts";
import { isUnreachable } from "./client.ts";
import { openRemoteBucket, patiently, type Retry } from "./remote-bucket.ts";

/** How long a server may look for the next line that matches. */
const SEARCH_MS = 600_000;
/** The pause before a log is followed again. */
const AGAIN_MS = 1_000;

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
  const read = (lines: number) => linesOf(bucket.stream(path, { worker, tail: lines, follow }, { signal: stop.signal }));
  const retry = { signal: stop.signal, tell: (text: string) => toStderr(`ops: ${text}\n`) };
  return await printJobLogs(input, follow ? followedLines(read, tail, retry) : read(tail), stop.signal);
}

/**
 * The lines of a log that is followed. Over a lost connection it goes on with what comes from then on: nobody knows which
 * of the earlier lines have been read.
 */
async function* followedLines(
  read: (tail: number) => AsyncGenerator<string>,
  tail: number,
  retry: Retry,
): AsyncGenerator<string> {
  for (let isFirst = true; ; isFirst = false) {
    const open = async () => {
      const opened = read(isFirst ? tail : 0);
      return { opened, first: await opened.next() };
    };
    const { opened, first } = await patiently(retry, open, { sent: isFirst });
    if (first.done) throw new Failure("failed", "the server's answer was cut");
    try {
      yield first.value;
      for await (const line of opened) {
        yield line;
        if (line.startsWith("end: ")) return;
      }
    } catch (error) {
      if (!isUnreachable(error)) throw error;
    }
    retry.tell("the connection was lost: what is logged until it is there again is missing");
    await sleep(AGAIN_MS, retry.signal);
  }
}

async function* entriesOf(lines: AsyncIterable<string>): AsyncGenerator<LogLine> {
  for await (const text of lines) {
    const entry = parseLogLine(text);
    if (entry) yield { text, entry };
  }
}
