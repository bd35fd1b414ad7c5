import path from "node:path";
import { exists } from "../../core/files.ts";
import { jobResourcesFile, type Layout } from "../base/layout.ts";
import type { Problems } from "../base/problems.ts";
import { readNotify } from "../notify/notify.ts";
import { checkUnchanged, type SourceTree, scanSource } from "../source/source-rules.ts";
import { readBucketConf, readJobSettings, warnAboutStrangers } from "./bucket-conf.ts";
import { readJobs } from "./jobs.ts";
import { checkPrometheus } from "./prometheus.ts";
import { readSchedules } from "./schedules.ts";
import { type OpsConf, readOpsConf } from "./settings.ts";
import { readDisabled, readWorkers, warnAboutDisabledStrangers } from "./workers.ts";

/** Everything that a build reads: ops.conf and the folder `workspace/`. */
export type Workspace = Awaited<ReturnType<typeof readWorkspace>>;

/** Reads the source of a bucket as it is on disk and collects all that is wrong with it. */
export async function readWorkspace(layout: Layout, problems: Problems, signal: AbortSignal) {
  const settings = await readOpsConf(layout, problems);
  if (!(await exists(layout.workspace))) problems.warn("workspace", "", "is not there: nothing has been pushed yet");
  const tree = scanSource(layout, problems, ownFiles(layout, settings));
  const bucketConf = await readBucketConf(layout, problems);
  const workers = await readWorkers(layout, settings, problems);
  const disabled = await readDisabled(layout, problems);
  const schedules = await readSchedules(layout, problems);
  const notify = await readNotify(layout, problems);
  const { jobs, broken } = readJobs(layout, tree, problems, signal);
  checkPrometheus(jobs, problems);
  const jobSettings = await readJobSettings(layout, settings.jobConfigSelector, problems);
  checkUnchanged(layout, tree, problems);
  warnAboutUnread(tree, layout, settings, problems);
  const names = new Set([...jobs.map((job) => job.name), ...broken]);
  warnAboutStrangers(jobSettings, names, problems);
  const hosts = new Set(workers.map((one) => one.host));
  warnAboutDisabledStrangers(layout, disabled, { jobs: names, hosts }, problems);
  workers.sort((a, b) => a.position - b.position || (a.host < b.host ? -1 : 1));
  return {
    settings,
    bucketConf,
    jobSettings,
    /** By position, then host: the order of deployment. */
    workers,
    disabled,
    schedules,
    notify,
    /** By name; the jobs whose manifest can be used, though they may have other problems. */
    jobs,
    /** The names of the other jobs. */
    broken,
    /** The paths of all files below `workspace/`. */
    files: [...tree.states.keys()],
  };
}

/** The files of `workspace/` that are read by name, and whose problems have codes of their own. */
function ownFiles(layout: Layout, settings: OpsConf): string[] {
  const { workersJson, disabledJson, schedulesJson, notifyJson, bucketConf } = layout;
  const own = [workersJson, disabledJson, schedulesJson, notifyJson, bucketConf];
  const jobSettings = jobResourcesFile(layout, settings.jobConfigSelector);
  return [...own, jobSettings].map((file) => path.relative(layout.workspace, file));
}

/** Says which files look like settings but are none: of another selector, or of no job. */
function warnAboutUnread(tree: SourceTree, layout: Layout, settings: OpsConf, problems: Problems): void {
  const selected = path.basename(jobResourcesFile(layout, settings.jobConfigSelector));
  const files = [...tree.states.keys()];
  const others = files.filter((file) => /^bucket\.jobs(\..+)?\.conf$/.test(file) && file !== selected);
  if (others.length > 0)
    problems.warn("workspace", others.join(", "), `not read: job_config_selector in ops.conf selects ${selected}`);
  for (const file of files)
    if (/^(jobs\/[^/]+\/)?vars\.toml$/.test(file) && !tree.states.has(file.replace(/vars\.toml$/, "manifest.json")))
      problems.warn("workspace", file, "not read: there is no manifest.json beside it");
}
