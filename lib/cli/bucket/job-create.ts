import { layoutOf } from "../../bucket/base/layout.ts";
import { createJob, type NewJob } from "../../bucket/workspace/job-template.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import { toStdout } from "../base/terminal.ts";

/** `ops job create <job>`: makes its folder in the workspace, under the bucket's lock, and prints its files. */
export async function createJobCommand(dir: string, job: NewJob): Promise<number> {
  const layout = layoutOf(dir);
  (await openBucket(layout)).close();
  const lock = await takeBucket(layout, uuidV7(), "job create");
  try {
    for (const file of await createJob(layout, job)) toStdout(`${file}\n`);
  } finally {
    await lock.release();
  }
  return 0;
}
