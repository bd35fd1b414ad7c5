import type { verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { Failure } from "../../core/errors.ts";
import { described, integer, nullable, object, quote, string } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { SNAPSHOT_KEYS, SNAPSHOT_TRUST } from "../../run/protocol.ts";
import { bucketRoute } from "../context.ts";
import { startRun } from "../start.ts";
import { START_FAILURES, STARTS } from "./operations.ts";
import { PAGE, page } from "./shapes.ts";
import { START_ROUTES } from "./start-paths.ts";

/** Loaded with the first request about snapshots. */
const snapshots = () => import("../../bucket/snapshots/snapshots.ts");

/** What a request says about a snapshot that is to be opened. */
const OPENING = { ...SNAPSHOT_TRUST, ...SNAPSHOT_KEYS };
const ONE_KEY = { exclusive: [["passphrase", "key"]] } as const;

/** Snapshots of a bucket (decisions: Snapshots). A run makes them: see the routes that start one. */
export const SNAPSHOT_ROUTES = [
  bucketRoute("GET /snapshots", "read", {
    summary: "List the snapshots of a bucket, newest first",
    query: PAGE,
    answer: { status: 200, description: "A page of snapshots", shape: page("Snapshot") },
    async handle({ query, bucket: { layout } }) {
      const { listSnapshots } = await snapshots();
      return json(200, await listSnapshots(layout, query));
    },
  }),
  bucketRoute(`POST ${START_ROUTES.snapshot_restore.path}`, START_ROUTES.snapshot_restore.role, {
    summary: "Restore a snapshot: the database, secrets/, .ssh/ and bucket.json, never the source",
    description:
      "A snapshot that another key than that of this server has signed needs `signer`, one without a signature `unsigned`. " +
      "A sealed one needs its passphrase, or the key that its owner finds for this snapshot alone; neither is stored. " +
      "The whole snapshot is checked before anything is touched, and the present state is saved as a snapshot first. " +
      "The result of the run names the source revision of the snapshot and the current revision.",
    body: object(OPENING, ONE_KEY),
    ...STARTS,
    failures: [...START_FAILURES, "frozen", "snapshot_not_found"],
    async handle(call, context) {
      const snapshot = call.params.name ?? "";
      return startRun(call, "snapshot_restore", context, async () => {
        await (await snapshots()).findSnapshot(call.bucket.layout, snapshot);
        return { ...call.body, snapshot, with_source: false };
      });
    },
  }),
  bucketRoute("POST /snapshots/{name}/verify", "operate", {
    summary: "Check that a snapshot can be restored",
    description:
      "Restores the snapshot into a temporary folder and compares signature, sums, rows and keys. The live bucket is not read.",
    body: object(OPENING, ONE_KEY),
    answer: {
      status: 200,
      description: "What was found",
      shape: object({
        error: described(nullable(string()), "Why the snapshot cannot be restored; null where it can"),
        files: described(nullable(integer({ min: 0 })), "null with an error, as the next two"),
        size_bytes: nullable(integer({ min: 0 })),
        sealed_values: described(nullable(integer({ min: 0 })), "Those that the key of the snapshot opens: all of them"),
      }),
    },
    failures: ["snapshot_not_found", "schema_too_new"],
    async handle({ params, body, request, bucket: { id, layout } }, { supervisor }) {
      const { name = "" } = params;
      const file = await (await snapshots()).findSnapshot(layout, name);
      const task = { name: "verify_snapshot", bucketDir: layout.root, bucketId: id, input: { ...body, file } } as const;
      request.longPoll();
      return json(200, await verdictOf(supervisor.task(task, `restore the snapshot ${quote(name)}`)));
    },
  }),
  bucketRoute("DELETE /snapshots/{name}", "admin", {
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

/** How the check of a snapshot ended: a snapshot that cannot be used is an answer, too. */
async function verdictOf(checked: Promise<unknown>) {
  try {
    const { files, size_bytes, sealed_values } = (await checked) as Awaited<ReturnType<typeof verifySnapshot>>;
    return { error: null, files, size_bytes, sealed_values };
  } catch (error) {
    if (!(error instanceof Failure && error.code === "failed")) throw error;
    return { error: error.message, files: null, size_bytes: null, sealed_values: null };
  }
}
