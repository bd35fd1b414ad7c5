import path from "node:path";
import { exists } from "../core/files.ts";
import {
  type BucketConf,
  type JobSettings,
  readBucketConf,
  readJobSettings,
  warnAboutStrangers,
} from "./bucket-conf.ts";
import { type JobSource, readJobs } from "./jobs.ts";
import { jobResourcesFile, type Layout } from "./layout.ts";
import type { Problems } from "./problems.ts";
import { type OpsConf, readOpsConf } from "./settings.ts";
import { checkUnchanged, scanSource } from "./source-tree.ts";
import {
  type Disabled,
  readDisabled,
  readWorkers,
  type Worker,
  warnAboutDisabledStrangers,
} from "./workers.ts";

/** Everything that a build reads: ops.conf and the folder `workspace/`. */
export interface Workspace {
  settings: OpsConf;
  bucketConf: BucketConf;
  jobSettings: JobSettings;
  /** By position, then host: the order of deployment. */
  workers: Worker[];
  disabled: Disabled;
  /** By name; those without problems. */
  jobs: JobSource[];
  /** The names of the jobs that have problems. */
  broken: ReadonlySet<string>;
}

/** Reads the source of a bucket as it is on disk and collects all that is wrong with it. */
export async function readWorkspace(
  layout: Layout,
  problems: Problems,
  signal: AbortSignal,
): Promise<Workspace> {
  const settings = await readOpsConf(layout, problems);
  if (!(await exists(layout.workspace)))
    problems.warn("workspace", "", "is not there: nothing has been pushed yet");
  const tree = scanSource(layout, problems, ownFiles(layout, settings));
  const bucketConf = await readBucketConf(layout, problems);
  const workers = await readWorkers(layout, settings, problems);
  const disabled = await readDisabled(layout, problems);
  const { jobs, broken } = readJobs(layout, tree, problems, signal);
  const jobSettings = await readJobSettings(layout, settings.jobConfigSelector, problems);
  checkUnchanged(layout, tree, problems);
  const names = new Set([...jobs.map((job) => job.name), ...broken]);
  warnAboutStrangers(jobSettings, names, problems);
  warnAboutDisabledStrangers(
    layout,
    disabled,
    { jobs: names, hosts: new Set(workers.map((one) => one.host)) },
    problems,
  );
  return { settings, bucketConf, jobSettings, workers: workers.sort(inOrder), disabled, jobs, broken };
}

/** The files of `workspace/` that are read by name, and whose problems have codes of their own. */
function ownFiles(layout: Layout, settings: OpsConf): string[] {
  const jobSettings = jobResourcesFile(layout, settings.jobConfigSelector);
  return [layout.workersJson, layout.disabledJson, layout.bucketConf, jobSettings].map((file) =>
    path.relative(layout.workspace, file),
  );
}

function inOrder(a: Worker, b: Worker): number {
  return a.position - b.position || (a.host < b.host ? -1 : 1);
}
