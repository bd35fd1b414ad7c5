import { name } from "../../bucket/base/names.ts";
import {
  BUCKET_CONF_FILE,
  jobResources,
  OPS_CONF_FILE,
  type SettingsFile,
  writeSettings,
} from "../../bucket/workspace/bucket-conf.ts";
import { createJob } from "../../bucket/workspace/job-template.ts";
import { changeWorker, WORKER_ENTRY } from "../../bucket/workspace/workers.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { described, list, object, quote, string, withExample } from "../../core/shape.ts";
import { type Answer, json } from "../../http/message.ts";
import { type BucketCall, bucketRoute, type Context, type ServerRoute } from "../context.ts";
import { workerDefinitions } from "../routes/files.ts";
import { component } from "../routes/shapes.ts";

const CHECKED = "It is checked as a build does. Not while a run is active.";
const FAILURES: readonly FailureCode[] = ["invalid_source", "bucket_busy"];

/** Replaces a settings file. */
function settingsRoute(path: string, summary: string, fileOf: (selector: string) => SettingsFile): ServerRoute {
  return bucketRoute(`PATCH /settings/${path}`, "deploy", {
    summary,
    description: CHECKED,
    body: object({ content: described(withExample(string(), "port_min = 30000\n"), "The whole text of the file") }),
    answer: { status: 200, description: "The file", shape: component("Settings") },
    failures: path.includes("{") ? [...FAILURES, "file_not_found"] : FAILURES,
    async handle({ params, body, bucket: { layout } }, { supervisor }) {
      const file = fileOf(params.selector ?? "");
      return json(200, await supervisor.exclusively(layout, "settings", () => writeSettings(layout, file, body.content)));
    },
  });
}

const WORKER_ANSWER = { description: "The worker", shape: component("WorkerDefinition") };
const REMOVAL = {
  summary: "Remove a worker from workspace/workers.json",
  description: "Not while a run is active. Nothing is done on the worker.",
  answer: { status: 204, description: "The file does not have it any more" },
  failures: [...FAILURES, "not_found" as const],
};

/** What a server changes in the source where nobody can push (control-plane.md, Earlier variant 5). */
export const CHANGE_ROUTES: readonly ServerRoute[] = [
  settingsRoute("maand", "Replace ops.conf", () => OPS_CONF_FILE),
  settingsRoute("bucket", "Replace workspace/bucket.conf", () => BUCKET_CONF_FILE),
  settingsRoute("job_resources/{selector}", "Replace the settings of the jobs", jobResources),
  bucketRoute("POST /workers", "deploy", {
    summary: "Add a worker to workspace/workers.json",
    description: CHECKED,
    body: WORKER_ENTRY,
    answer: { status: 201, ...WORKER_ANSWER },
    failures: FAILURES,
    async handle(call, context) {
      await changed(call, context, undefined, call.body);
      return json(201, await workerNamed(call, call.body.host));
    },
  }),
  bucketRoute("GET /workers/{host}", "read", {
    summary: "Show a worker as workspace/workers.json defines it",
    answer: { status: 200, ...WORKER_ANSWER },
    failures: ["not_found"],
    handle: async (call) => json(200, await workerNamed(call, call.params.host)),
  }),
  ...(["/workers", "/workers/{host}"] as const).map((path) =>
    bucketRoute(`PUT ${path}`, "deploy", {
      summary: "Replace a worker of workspace/workers.json",
      description: `The body is its whole entry. ${CHECKED}`,
      body: WORKER_ENTRY,
      answer: { status: 200, ...WORKER_ANSWER },
      failures: [...FAILURES, "not_found"],
      async handle(call, context) {
        await changed(call, context, call.params.host ?? String(call.body.host), call.body);
        return json(200, await workerNamed(call, call.body.host));
      },
    }),
  ),
  bucketRoute("DELETE /workers", "deploy", {
    ...REMOVAL,
    body: object({ host: withExample(string(), "10.0.0.4") }),
    handle: (call, context) => removed(call, context, call.body.host),
  }),
  bucketRoute("DELETE /workers/{host}", "deploy", {
    ...REMOVAL,
    handle: (call, context) => removed(call, context, call.params.host),
  }),
  bucketRoute("POST /jobs", "deploy", {
    summary: "Make a job of a template",
    description: "A template is a folder of templates/, or one of ops. Not while a run is active.",
    body: object({ name, template: described(withExample(string({ max: 200 }), "service"), "The name of the template") }),
    answer: { status: 201, description: "The job", shape: object({ name: string(), files: list(string()) }) },
    failures: FAILURES,
    async handle({ body, bucket: { layout } }, { supervisor }) {
      const files = await supervisor.exclusively(layout, "job create", () => createJob(layout, body)).catch(asRequest);
      return json(201, { name: body.name, files });
    },
  }),
];

async function changed(call: BucketCall, context: Context, host?: string, entry?: Record<string, unknown>): Promise<void> {
  const { layout } = call.bucket;
  await context.supervisor.exclusively(layout, "workers", () => changeWorker(layout, host, entry));
}

async function removed(call: BucketCall, context: Context, host?: string): Promise<Answer> {
  await changed(call, context, host);
  return { status: 204 };
}

async function workerNamed({ bucket: { layout } }: Pick<BucketCall, "bucket">, host: unknown) {
  const { workers } = await workerDefinitions(layout);
  const wanted = String(host).toLowerCase();
  const found = workers.find((worker) => worker.host.toLowerCase() === wanted);
  if (!found) throw new Failure("not_found", `there is no worker ${quote(String(host))} in workspace/workers.json`);
  return found;
}

/** A name that cannot be used is a wrong request. */
function asRequest(error: unknown): never {
  throw error instanceof Failure && error.code === "usage" ? new Failure("invalid_request", error.message) : error;
}
