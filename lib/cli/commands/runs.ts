import { Failure } from "../../core/errors.ts";
import { type ControlKind, JOB_CONTROL, type RunParams } from "../../run/protocol.ts";
import { BUCKET_DIR, bucketDir, type CommandRow, EXIT, type Flag, type Parsed } from "../base/flags.ts";
import { olderSpelling } from "./older.ts";
import { type Names, runCommand } from "./run-command.ts";

const WORKERS_SHORT = { workers: "w", labels: "l", concurrency: "c" };

const GENERATE: Flag[] = [
  {
    name: "generate-workers",
    help: "Write memory and processors of each worker into workspace/workers.json, once all have answered",
  },
  { name: "dry-run", help: "With --generate-workers: only show what would be written" },
];

async function factsView(input: Parsed) {
  const { switches } = input;
  const dryRun = switches.has("dry-run");
  if (switches.has("generate-workers")) {
    if (switches.has("json")) throw new Failure("usage", "give --generate-workers or --json, not both");
    const { generateWorkers } = await import("../bucket/workspace.ts");
    return (result: unknown) => generateWorkers(bucketDir(input), result, dryRun);
  }
  if (dryRun) throw new Failure("usage", "--dry-run goes with --generate-workers");
  return (await import("../bucket/results.ts")).factsTable;
}

const RUN_COMMAND = runCommand("run_command", {
  name: "run_command",
  operands: [
    {
      name: "command",
      help: "The script, for sh, or for bash where its first line says so (default: workspace/command.sh)",
      optional: true,
    },
  ],
  short: WORKERS_SHORT,
  flags: [{ name: "fold", help: "Show at the end which workers had the same output, instead of each line as it comes" }],
  async complete(params, input) {
    if (params.command !== undefined) return;
    const { readCommandFile } = await import("../bucket/workspace.ts");
    params.command = await readCommandFile(bucketDir(input));
  },
  async view({ switches }) {
    return switches.has("fold") ? (await import("../bucket/results.ts")).foldedText : undefined;
  },
});

/** `ops exec <worker> -- <command…>`: one word is a script, several are a command with its arguments. */
function onOneWorker({ operands: [worker = "", ...words], values, switches }: Parsed): Parsed {
  const quoted = words.map((word) => (/^[\w.,:@%+=/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`));
  const script = words.length === 1 ? (words[0] as string) : quoted.join(" ");
  return { operands: [script], values: new Map([...values, ["workers", worker]]), switches };
}

/** Flags that mean nothing on one worker. */
const NOT_ON_ONE = ["workers", "labels", "concurrency", "fold", "retry", "health-check", "ignore-failure"];

const EXEC: CommandRow = {
  name: "exec",
  summary: "Run a command on one worker, as `ops run_command` does, and show its output as it comes",
  operands: [
    { name: "worker", help: "The worker" },
    { name: "command", help: "A command with its arguments; a single word is a script for sh", many: true },
  ],
  changes: true,
  flags: RUN_COMMAND.flags.filter(({ name }) => !NOT_ON_ONE.includes(name)),
  run: async (input) => (await RUN_COMMAND.run?.(onOneWorker(input))) ?? EXIT.failed,
  remote: async (input, target) => (await RUN_COMMAND.remote?.(onOneWorker(input), target)) ?? EXIT.failed,
};

const HOOKS = {
  name: "hooks",
  operands: [
    { name: "hook", help: "The hook; it must be on the event cli" },
    { name: "job", help: "Its job (default: the only one that has the hook)", optional: true },
  ],
};

/** The earlier form had the job before the hook, too: the catalog tells which is which. */
async function inEitherOrder(params: RunParams, _: Parsed, names: Names): Promise<void> {
  const { hook, job } = params;
  const hooks = await names.hooks();
  const isThere = (ofJob: unknown, name: unknown) => hooks.some((one) => one.job === ofJob && one.hook === name);
  if (!isThere(job, hook) && isThere(hook, job)) Object.assign(params, { hook: job, job: hook });
}

/** Commands that make a bucket, bring it to its workers and control what runs there: most of them start a run. */
export const RUN_COMMANDS: readonly CommandRow[] = [
  {
    name: "init",
    changes: true,
    summary: "Make the current folder a bucket, or upgrade its database",
    flags: [BUCKET_DIR, { name: "id", value: "UUID", help: "Its id, where it was made elsewhere (default: a new one)" }],
    run: async (input) => (await import("../bucket/bucket.ts")).initCommand(input),
  },
  runCommand("build", { name: "build" }),
  runCommand("deploy", {
    name: "deploy",
    short: { build: "b", dry_run: "n" },
    async complete(params, _, names) {
      if (params.plan !== undefined) params.plan = await names.runNamed(String(params.plan));
    },
    summarise: async (result) =>
      (await import("../bucket/results.ts")).deploySummary(result, process.stdout.columns || undefined),
  }),
  runCommand("worker_trust", { name: "worker trust", short: WORKERS_SHORT }),
  runCommand("worker_facts", { name: "worker facts", short: WORKERS_SHORT, flags: GENERATE, view: factsView }),
  runCommand("worker_uptime", {
    name: "worker uptime",
    short: WORKERS_SHORT,
    view: async () => (await import("../bucket/results.ts")).uptimeTable,
  }),
  runCommand("worker_sysstat", {
    name: "worker sysstat",
    short: WORKERS_SHORT,
    view: async () => (await import("../bucket/results.ts")).sysstatTable,
  }),
  RUN_COMMAND,
  EXEC,
  runCommand("health_check", { name: "health_check" }),
  ...(Object.keys(JOB_CONTROL) as ControlKind[]).map((kind) =>
    runCommand(kind, {
      name: kind.replace("_", " "),
      // Optional, because the run that --retry names has its jobs.
      operands: [{ name: "jobs", help: "The job, or several with commas between them", optional: true }],
    }),
  ),
  {
    name: "job create",
    changes: true,
    summary: "Make a new job in the workspace, from a template or with a Makefile to fill in",
    operands: [{ name: "job", help: "Its name" }],
    flags: [
      BUCKET_DIR,
      { name: "selectors", short: "s", value: "A,B", help: "Labels that its workers carry (default: its name)" },
      {
        name: "template",
        value: "NAME",
        choices: ["service", "systemd", "compose"],
        isOpen: true,
        help: "A folder of templates/, or service, systemd, compose",
      },
    ],
    run: async (input) => (await import("../bucket/workspace.ts")).createJobCommand(input),
  },
  {
    name: "metrics init",
    changes: true,
    summary:
      "Write what a Prometheus needs to watch ops itself into _prometheus/ of a job: scrape configuration, alerts, runbooks",
    operands: [{ name: "job", help: "The job" }],
    flags: [BUCKET_DIR, { name: "target", value: "HOST:PORT", help: "Where the server of ops listens (default 127.0.0.1:9090)" }],
    run: async (input) => (await import("../bucket/workspace.ts")).metricsInitCommand(input),
  },
  runCommand("hooks", HOOKS),
  olderSpelling("job_command", runCommand("hooks", { ...HOOKS, complete: inEitherOrder })),
];
