import type { Problems } from "../../bucket/base/problems.ts";
import type { Reservation } from "../../bucket/catalog/catalog-write.ts";
import type { JobSettings } from "../../bucket/workspace/bucket-conf.ts";
import type { JobSource } from "../../bucket/workspace/jobs.ts";
import type { Bounds } from "../../bucket/workspace/manifest.ts";
import { parseCpuMhz, parseMemoryMb } from "../../codec/config/units.ts";
import { messageOf } from "../../core/errors.ts";

/**
 * What a job gets of memory and cpu: what the bucket's job settings say, else the manifest's maximum. A setting outside
 * the manifest's bounds is `ErrUnsupportedResourceConfiguration`; without bounds it becomes both of them.
 */
export function reserve(
  job: JobSource,
  settings: JobSettings,
  problems: Problems,
): { memory: Reservation; cpu: Reservation } {
  return {
    memory: one(job, settings, "memory", job.manifest.memory, parseMemoryMb, problems),
    cpu: one(job, settings, "cpu", job.manifest.cpu, parseCpuMhz, problems),
  };
}

function one(
  job: JobSource,
  settings: JobSettings,
  what: "memory" | "cpu",
  bounds: Bounds,
  parse: (text: string) => number,
  problems: Problems,
): Reservation {
  const own = { ...bounds, current: bounds.max, source: "manifest" };
  const text = settings.jobs.get(job.name)?.get(what)?.trim() ?? "";
  if (text === "") return own;
  const path = `${job.name}/${what}`;
  try {
    const current = parse(text);
    if (!(current >= 0 && current < 1e12)) throw new Error("must be at least 0 and below 1e12");
    const { min, max } = bounds.max === 0 ? { min: current, max: current } : bounds;
    if (current < min || current > max)
      problems.error(
        "ErrUnsupportedResourceConfiguration",
        settings.file,
        path,
        `${text} is outside what ${job.file} allows (${min} to ${max})`,
      );
    return { min, max, current, source: settings.file };
  } catch (error) {
    problems.error("ErrInvalidBucketConf", settings.file, path, messageOf(error));
    return own;
  }
}
