import { readFileSync } from "node:fs";
import path from "node:path";
import { Failure } from "../core/errors.ts";
import { PROGRAM_ROOT } from "../core/self.ts";
import { quote } from "../core/shape.ts";
import type { Command, Flag, Parsed } from "./flags.ts";

const BUCKET_DIR: Flag = {
  name: "bucket-dir",
  value: "DIR",
  help: "The bucket (default: the current folder)",
};

/** Every command of the program. What a command needs is loaded when it runs, so that each starts fast. */
export const COMMANDS: readonly Command[] = [
  {
    name: "init",
    summary: "Make the current folder a bucket, or upgrade its database",
    flags: [BUCKET_DIR],
    async run(input) {
      const { initCommand } = await import("./bucket.ts");
      return initCommand(bucketDir(input));
    },
  },
  {
    name: "build",
    summary: "Turn the workspace into the catalog that deploys work from",
    flags: [
      BUCKET_DIR,
      {
        name: "purge-job-kv",
        help: "Also drop variables and secrets of jobs that have no allocation any more",
      },
    ],
    async run(input) {
      const { runInBucket } = await import("./bucket.ts");
      return runInBucket("build", { purge_job_kv: input.switches.has("purge-job-kv") }, bucketDir(input));
    },
  },
  {
    name: "deploy",
    summary: "Bring the workers to the state of the catalog, in health-gated waves",
    flags: [
      BUCKET_DIR,
      { name: "jobs", value: "A,B", help: "Only these jobs" },
      { name: "build", short: "b", help: "Build first" },
      { name: "force", help: "Also roll out jobs whose deploy is complete" },
    ],
    async run(input) {
      const { runInBucket } = await import("./bucket.ts");
      const params = {
        ...listOf(input, "jobs"),
        build: input.switches.has("build"),
        force: input.switches.has("force"),
      };
      return runInBucket("deploy", params, bucketDir(input));
    },
  },
  {
    name: "worker trust",
    summary: "Record the host keys of workers, and of the jump hosts before them",
    flags: [
      BUCKET_DIR,
      { name: "workers", value: "A,B", help: "Only these workers (default: all that are reached over ssh)" },
      {
        name: "labels",
        value: "A,B",
        help: "Only workers with one of these labels; not together with --workers",
      },
      {
        name: "concurrency",
        value: "N",
        help: "How many are asked at a time (default: ssh_concurrency of ops.conf)",
      },
      { name: "force", help: "Replace known keys by what the workers show now" },
    ],
    async run(input) {
      const { runInBucket } = await import("./bucket.ts");
      const params = {
        ...listOf(input, "workers"),
        ...listOf(input, "labels"),
        ...numberOf(input, "concurrency", 1, 1024),
        force: input.switches.has("force"),
      };
      if (input.values.has("workers") && input.values.has("labels"))
        throw new Failure(
          "usage",
          "--labels and --workers exclude each other (see `ops worker trust --help`)",
        );
      return runInBucket("worker_trust", params, bucketDir(input));
    },
  },
  {
    name: "push",
    summary: "Send the source of a bucket to a server, which then builds it",
    operands: [{ name: "base_url", help: "The server, for example https://ops.example:9090" }],
    flags: [
      { name: "bucket", value: "UUID", help: "The bucket on the server" },
      { name: "dir", value: "DIR", help: "The local bucket (default: the current folder)" },
      { name: "ca-file", value: "FILE", help: "PEM certificates to trust besides the system's" },
    ],
    async run(input) {
      const { pushCommand } = await import("./push-command.ts");
      return pushCommand(input);
    },
  },
  {
    name: "server",
    summary: "Serve the HTTP API and the console for all buckets below a root",
    flags: [
      {
        name: "root",
        value: "DIR",
        help: "Folder of the buckets (or OPS_SERVE_ROOT); made if it is missing",
      },
      {
        name: "token",
        value: "TOKEN",
        help: "API token; others can read it in the process list, prefer the next two",
      },
      { name: "token-file", value: "FILE", help: "File that holds the API token (or set OPS_SERVE_TOKEN)" },
      { name: "addr", value: "HOST:PORT", help: "Listen address (default 127.0.0.1:9090)" },
      {
        name: "tls-cert",
        value: "FILE",
        help: "PEM certificate; needed unless the address is a loopback one",
      },
      { name: "tls-key", value: "FILE", help: "PEM key of the certificate" },
    ],
    async run(input) {
      const { serverCommand } = await import("./server.ts");
      return serverCommand(input);
    },
  },
  {
    name: "worker run",
    summary: "Carry out one run for a server",
    hidden: true,
    flags: [],
    async run() {
      const { runWorker } = await import("./worker.ts");
      return runWorker();
    },
  },
  {
    name: "version",
    summary: "Print the program's version",
    flags: [],
    async run() {
      const { version } = JSON.parse(readFileSync(path.join(PROGRAM_ROOT, "package.json"), "utf8"));
      process.stdout.write(`ops ${version} (node ${process.versions.node})\n`);
      return 0;
    },
  },
];

function bucketDir(input: Parsed): string {
  return path.resolve(input.values.get("bucket-dir") ?? ".");
}

/** The parts of a flag's list, under the flag's name; nothing where it was not given. Throws `usage`. */
function listOf(input: Parsed, name: string): Record<string, string[]> {
  const parts = input.values
    .get(name)
    ?.split(",")
    .map((part) => part.trim());
  if (parts?.includes("")) throw new Failure("usage", `--${name}: expected names with commas between them`);
  return parts === undefined ? {} : { [name]: parts };
}

/** A flag's whole number, under the flag's name; nothing where it was not given. Throws `usage`. */
function numberOf(input: Parsed, name: string, min: number, max: number): Record<string, number> {
  const text = input.values.get(name);
  if (text === undefined) return {};
  if (!/^\d{1,9}$/.test(text) || Number(text) < min || Number(text) > max)
    throw new Failure("usage", `--${name}: expected a number from ${min} to ${max}, found ${quote(text)}`);
  return { [name]: Number(text) };
}
