import type { Layout } from "../../lib/bucket/base/layout.ts";
import { type RunRecord, readRecord, runIds } from "../../lib/run/record.ts";

/** The records of all stored runs of a bucket, newest first. */
export async function storedRuns(layout: Layout): Promise<RunRecord[]> {
  const records = await Promise.all((await runIds(layout)).reverse().map((id) => readRecord(layout, id)));
  return records.filter((record) => record !== undefined);
}
