import type { Layout } from "../../bucket/base/layout.ts";
import { findRevision, listRevisions } from "../../bucket/source/revisions.ts";
import { acceptSource, receiveSource, restoreRevision, wantedRevision } from "../../bucket/source/source.ts";
import { diffRevisions } from "../../bucket/source/source-view.ts";
import { described, object, optional, string, withExample } from "../../core/shape.ts";
import { json, requireMediaType } from "../../http/message.ts";
import { ID, maskedText } from "../../run/record.ts";
import { startShape } from "../../run/request.ts";
import { bucketRoute } from "../context.ts";
import { requireGoingOn } from "../people/permission.ts";
import { encodedNote, startRun } from "../start.ts";
import { APPROVAL_FAILURES, START_FAILURES, STARTS } from "./operations.ts";
import { component, PAGE, page, pageById } from "./shapes.ts";
import { START_ROUTES } from "./start-paths.ts";

const TAR = "application/x-tar";
const GZIP = "application/gzip";

/** What a push says about itself. */
const SAID = {
  "Ops-Note": optional(
    described(encodedNote("More%20memory"), "Why the source changes: one line of at most 200 characters, percent-encoded UTF-8"),
  ),
  "Ops-Commit": optional(
    described(
      withExample(
        string({ pattern: /^[0-9a-f]{40}([0-9a-f]{24})?(-dirty)?$/, means: "a Git commit, perhaps with -dirty" }),
        "3c6e0b8a9c15224a8228b9a98ca1531d5a2f7c11",
      ),
      "The Git commit of the source, with `-dirty` where files differ from it",
    ),
  ),
};

/** Secrets of the bucket are masked before anything is stored. */
async function saidBy(headers: Readonly<Record<string, unknown>>, layout: Layout, by: string) {
  const { "Ops-Note": note, "Ops-Commit": commit } = headers as Partial<Record<keyof typeof SAID, string>>;
  return { note: note === undefined ? null : await maskedText(layout, note), commit: commit ?? null, by };
}

/** The source of a bucket: pushed from outside, kept as revisions (control-plane.md, Source push). */
export const SOURCE_ROUTES = [
  bucketRoute(`POST ${START_ROUTES.push.path}`, START_ROUTES.push.role, {
    summary: "Push: replace the source of a bucket and build it",
    description:
      "The body is a ustar archive, or the same gzipped, of ops.conf, workspace/ and templates/; at most 256 MiB " +
      "unpacked and 20,000 entries. A busy bucket is refused before the body is read. Nothing is deployed.",
    upload: [TAR, GZIP],
    headers: { ...STARTS.headers, ...SAID },
    answer: { ...STARTS.answer, description: "The source is replaced; its build has started" },
    failures: [...START_FAILURES, "invalid_source", "unsupported_media_type"],
    async handle(call, context) {
      const { request, bucket } = call;
      return startRun(call, "push", context, async (runId, body) => {
        const gzip = requireMediaType(request, TAR, GZIP) === GZIP;
        const received = await receiveSource(bucket.layout, body, gzip, request.signal);
        // An upload takes long enough for a token to be revoked.
        requireGoingOn(context.identity);
        const said = await saidBy(call.headers, bucket.layout, context.identity.name);
        const { id, note, commit } = await acceptSource(bucket.layout, received, runId, said);
        return { revision: id, ...(note !== null && { note }), ...(commit !== null && { commit }) };
      });
    },
  }),
  bucketRoute("GET /source/revisions", "read", {
    summary: "List the revisions of the source, newest first",
    query: PAGE,
    answer: { status: 200, description: "A page of revisions", shape: page("Revision") },
    handle: async ({ query, bucket: { layout } }) => json(200, await pageById(() => listRevisions(layout), query)),
  }),
  bucketRoute("GET /source/revisions/{revision_id}/diff", "read", {
    summary: "Show what differs in a revision from another one",
    description:
      "What the step from `against` (default: the current revision) to this revision changes. Diffs are left " +
      "out of files over 256 KiB and beyond 1 MiB in all.",
    query: { against: optional(described(ID, "A revision (default: the current one)")) },
    answer: { status: 200, description: "The differences", shape: component("RevisionDiff") },
    failures: ["revision_not_found"],
    async handle({ params, query, bucket: { layout } }) {
      const revision = await findRevision(layout, params.revision_id ?? "");
      const against = query.against
        ? await findRevision(layout, query.against)
        : (await listRevisions(layout)).find(({ current }) => current);
      const before = against?.id ?? revision.id;
      const differences = await diffRevisions(layout, before, revision.id);
      return json(200, { revision_id: revision.id, against: before, ...differences });
    },
  }),
  bucketRoute(`POST ${START_ROUTES.rollback.path}`, START_ROUTES.rollback.role, {
    summary: "Roll the source back to a revision and build it",
    description: "The revision becomes the current one; no new revision is made. Nothing is deployed.",
    body: startShape("rollback", object({ revision_id: optional(described(ID, "Default: the last successful one")) })),
    ...STARTS,
    failures: [...START_FAILURES, ...APPROVAL_FAILURES, "frozen", "revision_not_found"],
    async handle(call, context) {
      const { layout } = call.bucket;
      return startRun(call, "rollback", context, {
        prepare: async () => ({ revision: (await wantedRevision(layout, call.body.revision_id as string | undefined)).id }),
        apply: async ({ revision }) => void (await restoreRevision(layout, String(revision))),
      });
    },
  }),
];
