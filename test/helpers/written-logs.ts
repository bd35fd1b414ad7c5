import { closeSync, openSync, readFileSync } from "node:fs";
import type { TestContext } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import type { LinePlace } from "../../lib/bucket/base/line-place.ts";
import { RunLog } from "../../lib/bucket/base/logs.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Redactor } from "../../lib/core/redact.ts";
import { ActivityWriter } from "../../lib/run/activity-writer.ts";
import { createRecord, saveRecord, settle } from "../../lib/run/record.ts";
import { temporaryFolder } from "./temporary.ts";

/** A run that goes on and writes its log as runs do; `end` ends the run. */
export async function writtenRun(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  const id = uuidV7();
  const actor = { address: "here", via: "cli" } as const;
  const start = { id, bucket_id: id, origin: "server", kind: "build", params: {}, actor, requestId: null } as const;
  const record = await createRecord(layout, start);
  const files = runLayout(layout, id);
  const output = openSync(files.activity, "a", 0o600);
  t.after(() => closeSync(output));
  const writer = new ActivityWriter(output, files);
  t.after(() => writer.close());
  const activity = (text: string, place: LinePlace) => writer.append(text, place);
  const log = new RunLog({ layout, runId: id, command: "build", redactor: new Redactor(), activity, format: "kv" });
  t.after(() => log.close());
  return {
    layout,
    id,
    files,
    output,
    log,
    text: () => readFileSync(files.activity, "utf8"),
    async end(result: unknown = null) {
      settle(record, { exitCode: 0, signal: null, outcome: { ok: true, error: null, result } });
      await saveRecord(layout, record);
    },
  };
}
