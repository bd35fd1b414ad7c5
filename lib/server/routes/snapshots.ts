import { object } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { bucketRoute, startRun } from "../context.ts";
import { START_FAILURES, STARTED } from "./operations.ts";
import { PAGE, page } from "./shapes.ts";

/** Loaded with the first request about snapshots. */
const snapshots = () => import("../../bucket/snapshots/snapshots.ts");

/** Snapshots of a bucket (decisions: Snapshots). A run makes them: see the routes that start one. */
export const SNAPSHOT_ROUTES = [
  bucketRoute({
    method: "GET",
    path: "/snapshots",
    summary: "List the snapshots of a bucket, newest first",
    query: PAGE,
    answer: { status: 200, description: "A page of snapshots", shape: page("Snapshot") },
    async handle({ query, bucket: { layout } }) {
      const { listSnapshots } = await snapshots();
      return json(200, await listSnapshots(layout, query));
    },
  }),
  bucketRoute({
    method: "POST",
    path: "/snapshots/{name}/restore",
    summary: "Restore a snapshot: the database, secrets/, .ssh/ and bucket.json, never the source",
    description:
      "The whole snapshot is checked before anything is touched, and the present state is saved as a snapshot first. " +
      "The result of the run names the source revision of the snapshot and the current revision.",
    body: object({}),
    answer: STARTED,
    failures: [...START_FAILURES, "snapshot_not_found"],
    async handle(call, context) {
      const snapshot = call.params.name ?? "";
      return startRun(call, "snapshot_restore", context, async () => {
        await (await snapshots()).findSnapshot(call.bucket.layout, snapshot);
        return { snapshot, with_source: false };
      });
    },
  }),
  bucketRoute({
    method: "DELETE",
    path: "/snapshots/{name}",
    summary: "Remove a snapshot",
    description: "Not while a run is active.",
    answer: { status: 204, description: "There is no such snapshot any more" },
    failures: ["snapshot_not_found", "bucket_busy"],
    async handle({ params, bucket: { layout } }, { supervisor }) {
      const { deleteSnapshot } = await snapshots();
      await supervisor.exclusively(layout, "snapshot_delete", () => deleteSnapshot(layout, params.name ?? ""));
      return { status: 204 };
    },
  }),
];
