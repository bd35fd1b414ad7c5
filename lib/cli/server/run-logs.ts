import { type Layout, runLayout } from "../../bucket/base/layout.ts";
import { type LogFilter, type LogLine, readLogs } from "../../bucket/base/logs.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { exists } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { runNamed } from "../../run/record.ts";

/** Which structured lines of a bucket are wanted. */
export interface WantedLogs {
  filter: LogFilter;
  /** Only so many of the last ones. */
  tail?: number | undefined;
  /** The folder to read instead of those of the bucket. */
  folder?: string | undefined;
}

/**
 * The structured lines that are wanted, in the order of time. They come from `folder`, else from the folder of the run when
 * the filter names exactly one, else from `logs/`. A run is named by the beginning or the end of its id. Throws
 * `run_not_found` where there are no lines and no such run.
 */
export async function* runLogLines(layout: Layout, { filter, tail, folder }: WantedLogs): AsyncGenerator<LogLine> {
  const runs = folder === undefined && filter.run ? await Promise.all(filter.run.map((run) => runOf(layout, run))) : filter.run;
  const lines = readLogs(folder ?? (await folderOf(layout, runs)), { ...filter, ...(runs && { run: runs }) });
  let isEmpty = true;
  for await (const line of tail === undefined ? lines : await lastOf(lines, tail)) {
    isEmpty = false;
    yield line;
  }
  // The ids of runs that exist are whole by now.
  const unknown = isEmpty && tail !== 0 ? runs?.find((run) => !isUuid(run)) : undefined;
  if (unknown !== undefined) throw new Failure("run_not_found", `there is no run ${quote(unknown)}`);
}

/** The id of a run. A run whose folder is gone may still have lines in `logs/`. */
async function runOf(layout: Layout, given: string): Promise<string> {
  return runNamed(layout, given).catch((error: unknown) => {
    if (error instanceof Failure && error.code === "run_not_found") return given;
    throw error;
  });
}

async function folderOf(layout: Layout, [id = "", ...others]: readonly string[] = []): Promise<string> {
  const { folder } = runLayout(layout, id);
  return others.length === 0 && isUuid(id) && (await exists(folder)) ? folder : layout.logs;
}

async function lastOf(lines: AsyncIterable<LogLine>, count: number): Promise<LogLine[]> {
  const last: LogLine[] = [];
  for await (const line of lines) {
    last.push(line);
    if (last.length > 2 * count) last.splice(0, last.length - count);
  }
  return count === 0 ? [] : last.slice(-count);
}

const PIECE_CHARACTERS = 64 * 1024;

/** Writes the texts of lines, as they are, in pieces of about 64 KiB. */
export async function writeLines(lines: AsyncIterable<Pick<LogLine, "text">>, write: (text: string) => void): Promise<void> {
  let piece = "";
  for await (const { text } of lines) {
    piece += `${text}\n`;
    if (piece.length < PIECE_CHARACTERS) continue;
    write(piece);
    piece = "";
  }
  if (piece !== "") write(piece);
}
