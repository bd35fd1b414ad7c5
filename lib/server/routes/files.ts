import { catalogFile, hasCatalogJob, listCatalogFiles } from "../../bucket/catalog/catalog.ts";
import { findBucket } from "../../bucket/source/root.ts";
import { listSourceFiles, listTemplates, modeText, openSourceFile } from "../../bucket/source/source-view.ts";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { bytesDownload, downloadAnswer, fileDownload } from "../../http/download.ts";
import { type Answer, type HttpRequest, json } from "../../http/message.ts";
import { route } from "../context.ts";
import { READ_FAILURES } from "./catalog.ts";
import { PATH_PAGE, page } from "./shapes.ts";

const BUCKET = "/api/buckets/{bucket_id}";
/** What a file holds is for no browser to guess. */
const BYTES = "application/octet-stream";
const RAW = "Has an ETag and takes ranges.";

/** Files for reading: the source as it is, and the jobs as they were built (control-plane.md, Ownership boundary 2). */
export const FILE_ROUTES = [
  route({
    method: "GET",
    path: `${BUCKET}/files`,
    summary: "List the files of the source: ops.conf and those below workspace/ and templates/",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of files, by path", shape: page("SourceFile") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { items, more } = await listSourceFiles(layout, { after: query.cursor ?? "", limit: query.limit });
      return json(200, { items, next_cursor: more ? items.at(-1)?.path : null });
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/files/{path*}`,
    summary: "Read a file of the source",
    description: `${RAW} Symbolic links are refused wherever they stand on the way.`,
    answer: { status: 200, description: "Its bytes", type: BYTES, ranges: true },
    failures: ["bucket_not_found", "file_not_found"],
    async handle({ params, request }, { root }) {
      return sourceFile(request, root, params.bucket_id, params.path ?? "", BYTES);
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/templates`,
    summary: "List the templates for jobs: the folders of templates/ with their files",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of templates, by name", shape: page("Template") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { items, more } = await listTemplates(layout, { after: query.cursor ?? "", limit: query.limit });
      return json(200, { items, next_cursor: more ? items.at(-1)?.name : null });
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/workspace/disabled.json`,
    summary: "Read workspace/disabled.json",
    description: RAW,
    answer: { status: 200, description: "Its bytes", type: "application/json", ranges: true },
    failures: ["bucket_not_found", "file_not_found"],
    async handle({ params, request }, { root }) {
      return sourceFile(request, root, params.bucket_id, "workspace/disabled.json", "application/json");
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/jobs/{job}/files`,
    summary: "List the files of a job as it was built",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of files, by path", shape: page("SourceFile") },
    failures: [...READ_FAILURES, "not_found"],
    async handle({ params, query }, { root, readers }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { job = "" } = params;
      const wanted = { after: query.cursor ?? "", limit: query.limit + 1 };
      const found = await readers.read(layout, (db) =>
        hasCatalogJob(db, job) ? listCatalogFiles(db, job, wanted) : undefined,
      );
      if (!found) throw new Failure("not_found", `there is no job ${quote(job)} in the catalog`);
      const items = found.slice(0, query.limit).map((file) => ({ ...file, mode: modeText(file.mode) }));
      return json(200, { items, next_cursor: found.length > query.limit ? items.at(-1)?.path : null });
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/jobs/{job}/files/{path*}`,
    summary: "Read a file of a job as it was built",
    description: RAW,
    answer: { status: 200, description: "Its bytes", type: BYTES, ranges: true },
    failures: [...READ_FAILURES, "file_not_found"],
    async handle({ params, request }, { root, readers }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { job = "", path = "" } = params;
      const file = await readers.read(layout, (db) => catalogFile(db, job, path));
      if (!file) throw new Failure("file_not_found", `job ${quote(job)} has no file ${quote(path)}`);
      return downloadAnswer(request, bytesDownload(BYTES, file.content, file.sha256));
    },
  }),
];

async function sourceFile(
  request: HttpRequest,
  root: string,
  bucketId: string | undefined,
  path: string,
  type: string,
): Promise<Answer> {
  const { layout } = findBucket(root, bucketId ?? "");
  return downloadAnswer(request, await fileDownload(type, await openSourceFile(layout, path)));
}
