import type { Layout } from "../../bucket/base/layout.ts";
import { Problems } from "../../bucket/base/problems.ts";
import { catalogFile, jobNames, listCatalogFiles } from "../../bucket/catalog/catalog.ts";
import { listSourceFiles, listTemplates, modeText, openSourceFile } from "../../bucket/source/source-view.ts";
import { BUCKET_CONF_FILE, jobResources, OPS_CONF_FILE, settingsView } from "../../bucket/workspace/bucket-conf.ts";
import { readOpsConf } from "../../bucket/workspace/settings.ts";
import { readWorkers, type Worker } from "../../bucket/workspace/workers.ts";
import { Failure } from "../../core/errors.ts";
import { openContained } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { bytesDownload, downloadAnswer, fileDownload } from "../../http/download.ts";
import { type Answer, type HttpRequest, json } from "../../http/message.ts";
import { bucketRoute } from "../context.ts";
import { READ_FAILURES } from "./catalog.ts";
import { component, offsetOf, PAGE, PATH_PAGE, page, pageOf } from "./shapes.ts";

/** No browser shall guess what a file holds. */
const BYTES = "application/octet-stream";
const RAW = "Has an ETag and takes ranges.";

/**
 * For reading: the files of the source, the jobs as they were built, and the settings of the bucket, its jobs and its
 * workers (control-plane.md, Ownership boundary 2). Only a push or a rollback changes them.
 */
export const FILE_ROUTES = [
  bucketRoute("GET /files", "read", {
    summary: "List the files of the source: ops.conf and those below workspace/ and templates/",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of files, by path", shape: page("SourceFile") },
    async handle({ query, bucket: { layout } }) {
      const { items, more } = await listSourceFiles(layout, { after: query.cursor ?? "", limit: query.limit });
      return json(200, { items, next_cursor: more ? items.at(-1)?.path : null });
    },
  }),
  bucketRoute("GET /files/{path*}", "read", {
    summary: "Read a file of the source",
    description: `${RAW} Symbolic links are refused wherever they stand on the way.`,
    answer: { status: 200, description: "Its bytes", type: BYTES, ranges: true },
    failures: ["file_not_found"],
    handle: async ({ params, request, bucket: { layout } }) => sourceFile(layout, params.path ?? "", request, BYTES),
  }),
  bucketRoute("GET /templates", "read", {
    summary: "List the templates for jobs: the folders of templates/ with their files",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of templates, by name", shape: page("Template") },
    async handle({ query, bucket: { layout } }) {
      const { items, more } = await listTemplates(layout, { after: query.cursor ?? "", limit: query.limit });
      return json(200, { items, next_cursor: more ? items.at(-1)?.name : null });
    },
  }),
  bucketRoute("GET /workspace/disabled.json", "read", {
    summary: "Read workspace/disabled.json",
    description: RAW,
    answer: { status: 200, description: "Its bytes", type: "application/json", ranges: true },
    failures: ["file_not_found"],
    handle: async ({ request, bucket: { layout } }) => sourceFile(layout, "workspace/disabled.json", request, "application/json"),
  }),
  bucketRoute("GET /jobs/{job}/files", "read", {
    summary: "List the files of a job as it was built",
    query: PATH_PAGE,
    answer: { status: 200, description: "A page of files, by path", shape: page("SourceFile") },
    failures: [...READ_FAILURES, "not_found"],
    async handle({ params, query, bucket: { layout } }, { readers }) {
      const job = params.job?.toLowerCase() ?? "";
      const wanted = { after: query.cursor ?? "", limit: query.limit + 1 };
      const found = await readers.read(layout, (db) => (jobNames(db).has(job) ? listCatalogFiles(db, job, wanted) : undefined));
      if (!found) throw new Failure("not_found", `there is no job ${quote(job)} in the catalog`);
      const items = found.slice(0, query.limit).map((file) => ({ ...file, mode: modeText(file.mode) }));
      return json(200, { items, next_cursor: found.length > query.limit ? items.at(-1)?.path : null });
    },
  }),
  bucketRoute("GET /jobs/{job}/files/{path*}", "read", {
    summary: "Read a file of a job as it was built",
    description: RAW,
    answer: { status: 200, description: "Its bytes", type: BYTES, ranges: true },
    failures: [...READ_FAILURES, "file_not_found"],
    async handle({ params, request, bucket: { layout } }, { readers }) {
      const [job, path] = [params.job?.toLowerCase() ?? "", params.path ?? ""];
      const found = await readers.read(layout, (db) => ({ file: catalogFile(db, job, path), contents: db.contents }));
      const { file, contents } = found;
      if (!file) throw new Failure("file_not_found", `job ${quote(job)} has no file ${quote(path)}`);
      const { content, sha256 } = file;
      if (Buffer.isBuffer(content)) return downloadAnswer(request, bytesDownload(BYTES, content, sha256));
      const download = await fileDownload(BYTES, await openContained(contents, sha256));
      return downloadAnswer(request, { ...download, version: sha256 });
    },
  }),
  bucketRoute("GET /settings/maand", "read", {
    summary: "Show ops.conf",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    handle: async ({ bucket: { layout } }) => json(200, await settingsView(layout, OPS_CONF_FILE)),
  }),
  bucketRoute("GET /settings/bucket", "read", {
    summary: "Show workspace/bucket.conf",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    handle: async ({ bucket: { layout } }) => json(200, await settingsView(layout, BUCKET_CONF_FILE)),
  }),
  bucketRoute("GET /settings/job_resources/{selector}", "read", {
    summary: "Show the settings of the jobs: workspace/bucket.jobs.<selector>.conf",
    description: "`default` is workspace/bucket.jobs.conf.",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    failures: ["file_not_found"],
    handle: async ({ params, bucket: { layout } }) => json(200, await settingsView(layout, jobResources(params.selector ?? ""))),
  }),
  bucketRoute("GET /workers", "read", {
    summary: "Show the workers as workspace/workers.json defines them",
    description: "In the order of the file, with the defaults of ops.conf. With problems, the list is empty.",
    query: PAGE,
    answer: {
      status: 200,
      description: "A page of workers, and what is wrong with the file or ops.conf",
      shape: component("WorkerDefinitions"),
    },
    async handle({ query, bucket: { layout } }) {
      const { workers, problems } = await workerDefinitions(layout);
      return json(200, { ...pageOf(workers, offsetOf(query.cursor), query.limit), problems });
    },
  }),
];

async function sourceFile(layout: Layout, path: string, request: HttpRequest, type: string): Promise<Answer> {
  return downloadAnswer(request, await fileDownload(type, await openSourceFile(layout, path)));
}

/** The workers as workers.json defines them, and what is wrong with it or ops.conf; then there are none. */
export async function workerDefinitions(layout: Layout) {
  const problems = new Problems();
  const workers = await readWorkers(layout, await readOpsConf(layout, problems), problems);
  return { workers: workers.map(workerDefinition), problems: problems.errors };
}

function workerDefinition(worker: Worker) {
  return {
    host: worker.host,
    hostname: worker.hostname,
    connection: worker.connection,
    root: worker.root,
    ssh_user: worker.sshUser ?? null,
    ssh_port: worker.sshPort ?? null,
    ssh_jump: worker.sshJump ?? null,
    labels: worker.labels,
    memory_mb: worker.memoryMb,
    cpu_mhz: worker.cpuMhz,
    tags: Object.fromEntries(worker.tags),
    position: worker.position,
  };
}
