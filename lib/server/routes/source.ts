import { listRevisions } from "../../bucket/revisions.ts";
import { findBucket } from "../../bucket/root.ts";
import { acceptSource, receiveSource } from "../../bucket/source.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { json, requireMediaType } from "../../http/message.ts";
import { route } from "../context.ts";
import { startRun } from "../start.ts";
import { START_FAILURES } from "./operations.ts";
import { component, PAGE, page } from "./shapes.ts";

const TAR = "application/x-tar";
const GZIP = "application/gzip";

/** The source of a bucket: pushed from outside, kept as revisions (control-plane.md, Source push). */
export const SOURCE_ROUTES = [
  route({
    method: "POST",
    path: "/api/buckets/{bucket_id}/push",
    summary: "Push: replace the source of a bucket and build it",
    description:
      "The body is a ustar archive, or the same gzipped, of ops.conf, workspace/ and templates/; at most 256 MiB " +
      "unpacked and 20,000 entries. Whether the bucket is free is checked before the body is read. Never deploys.",
    upload: [TAR, GZIP],
    answer: {
      status: 202,
      description: "The source is replaced; its build has started",
      shape: component("RunStarted"),
    },
    failures: [...START_FAILURES, "invalid_source", "unsupported_media_type"],
    async handle({ params, request }, context) {
      const bucket = await findBucket(context.root, params.bucket_id ?? "");
      return startRun(bucket, "push", request, context, async (runId) => {
        const gzip = requireMediaType(request, TAR, GZIP) === GZIP;
        const received = await receiveSource(bucket.layout, request.body, gzip, request.signal);
        const revision = await acceptSource(bucket.layout, received, runId);
        return { revision: revision.id };
      });
    },
  }),
  route({
    method: "GET",
    path: "/api/buckets/{bucket_id}/source/revisions",
    summary: "List the revisions of the source, newest first",
    query: PAGE,
    answer: { status: 200, description: "A page of revisions", shape: page("Revision") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { cursor, limit } = query;
      const { layout } = await findBucket(root, params.bucket_id ?? "");
      if (cursor !== undefined && !isUuid(cursor))
        throw new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
      const left = (await listRevisions(layout)).filter(({ id }) => cursor === undefined || id < cursor);
      const items = left.slice(0, limit);
      return json(200, { items, next_cursor: left.length > limit ? items.at(-1)?.id : null });
    },
  }),
];
