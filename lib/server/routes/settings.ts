import { Problems } from "../../bucket/base/problems.ts";
import { findBucket } from "../../bucket/source/root.ts";
import { bucketConfView, jobResourcesView, opsConfView } from "../../bucket/workspace/bucket-conf.ts";
import { readOpsConf } from "../../bucket/workspace/settings.ts";
import { readWorkers, type Worker } from "../../bucket/workspace/workers.ts";
import { json } from "../../http/message.ts";
import { route } from "../context.ts";
import { component, offsetOf, PAGE } from "./shapes.ts";

const BUCKET = "/api/buckets/{bucket_id}";

/** What the source says about the bucket, its jobs and its workers, for reading only: only a push changes it. */
export const SETTINGS_ROUTES = [
  route({
    method: "GET",
    path: `${BUCKET}/settings/maand`,
    summary: "Show ops.conf",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    failures: ["bucket_not_found"],
    async handle({ params }, { root }) {
      return json(200, await opsConfView(findBucket(root, params.bucket_id ?? "").layout));
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/settings/bucket`,
    summary: "Show workspace/bucket.conf",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    failures: ["bucket_not_found"],
    async handle({ params }, { root }) {
      return json(200, await bucketConfView(findBucket(root, params.bucket_id ?? "").layout));
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/settings/job_resources/{selector}`,
    summary: "Show the settings of the jobs: workspace/bucket.jobs.<selector>.conf",
    description: "`default` is workspace/bucket.jobs.conf.",
    answer: { status: 200, description: "The file", shape: component("Settings") },
    failures: ["bucket_not_found", "file_not_found"],
    async handle({ params }, { root }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      return json(200, await jobResourcesView(layout, params.selector ?? ""));
    },
  }),
  route({
    method: "GET",
    path: `${BUCKET}/workers`,
    summary: "Show the workers as workspace/workers.json defines them",
    description: "In the order of the file, with the defaults of ops.conf. With problems, the list is empty.",
    query: PAGE,
    answer: {
      status: 200,
      description: "A page of workers, and what is wrong with the file or ops.conf",
      shape: component("WorkerDefinitions"),
    },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const problems = new Problems();
      const workers = await readWorkers(layout, await readOpsConf(layout, problems), problems);
      const offset = offsetOf(query.cursor);
      const end = offset + query.limit;
      const items = workers.slice(offset, end).map(definitionOf);
      const next_cursor = end < workers.length ? String(end) : null;
      return json(200, { items, next_cursor, problems: problems.errors });
    },
  }),
];

function definitionOf(worker: Worker) {
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
