import { findBucket } from "../../bucket/source/root.ts";
import { object } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { route } from "../context.ts";
import { startRun } from "../start.ts";
import { START_FAILURES, STARTED } from "./operations.ts";
import { PAGE, page } from "./shapes.ts";

const SNAPSHOTS = "/api/buckets/{bucket_id}/snapshots";

/** Snapshots of a bucket (decisions: Snapshots); what lists and finds them is loaded when it is asked for. */
const snapshots = () => import("../../bucket/snapshots/snapshots.ts");

/** What was saved of a bucket. Snapshots are made by a run: see the routes that start one. */
export const SNAPSHOT_ROUTES = [
  route({
    method: "GET",
    path: SNAPSHOTS,
    summary: "List the snapshots of a bucket, newest first",
    query: PAGE,
    answer: { status: 200, description: "A page of snapshots", shape: page("Snapshot") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { listSnapshots } = await snapshots();
      return json(200, await listSnapshots(layout, query));
    },
  }),
  route({
    method: "POST",
    path: `${SNAPSHOTS}/{name}/restore`,
    summary: "Restore a snapshot: the database, secrets/, .ssh/ and bucket.json, never the source",
    description:
      "Everything in the snapshot is checked before anything is touched, and the present is saved as a snapshot first. " +
      "The result of the run names the revision that was the source of the snapshot and the one that is current.",
    body: object({}),
    answer: STARTED,
    failures: [...START_FAILURES, "snapshot_not_found"],
    async handle({ params, request }, context) {
      const bucket = findBucket(context.root, params.bucket_id ?? "");
      const snapshot = params.name ?? "";
      return startRun(bucket, "snapshot_restore", request, context, async () => {
        await (await snapshots()).findSnapshot(bucket.layout, snapshot);
        return { snapshot, with_source: false };
      });
    },
  }),
  route({
    method: "DELETE",
    path: `${SNAPSHOTS}/{name}`,
    summary: "Remove a snapshot",
    description: "Not while a run is active.",
    answer: { status: 204, description: "There is no such snapshot any more" },
    failures: ["bucket_not_found", "snapshot_not_found", "bucket_busy"],
    async handle({ params }, { root, supervisor }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { deleteSnapshot } = await snapshots();
      await supervisor.exclusively(layout, "snapshot_delete", () => deleteSnapshot(layout, params.name ?? ""));
      return { status: 204 };
    },
  }),
];
