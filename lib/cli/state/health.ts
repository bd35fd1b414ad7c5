import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { ago, printJson, printTable, shortId, toStdout } from "../base/terminal.ts";
import type { BucketAccess } from "./access.ts";

/** `ops health [job]`: how everything is, since when, and for how much of the time it was well. */
export async function showHealth(bucket: BucketAccess, input: Parsed): Promise<number> {
  const [job] = input.operands;
  const items = await bucket.health(job?.toLowerCase());
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) toStdout("no run has looked yet: ops health_check, ops drift\n");
  else {
    const rows = items.map(({ job, worker, aspect, state, at, changes, good_percent, reason, run_id }) => {
      const place = job === "" ? worker : `${job}@${worker}`;
      return [place, aspect, state.replace("_", " "), ago(at), changes, `${good_percent} %`, reason, shortId(run_id)];
    });
    printTable(["place", "what", "state", "since", "changes", "well", "reason", "run"], rows);
  }
  return EXIT.done;
}
