import type { Layout } from "../bucket/base/layout.ts";
import { type Orders, type RunKind, type RunParams, secretsApart } from "./protocol.ts";
import { askedBy, type RunRecord } from "./record.ts";

/** What the process of a run is told: all that was asked for, with the secrets that the record has not. */
export function ordersOf(layout: Layout, record: RunRecord, asked: RunParams): Omit<Orders, "type"> {
  const { id: runId, bucket_id: bucketId, revision, break_glass: breakGlass } = record;
  const kind = record.kind as RunKind;
  const by = askedBy(record);
  return { runId, bucketDir: layout.root, bucketId, kind, ...secretsApart(kind, asked), revision, by, breakGlass };
}
