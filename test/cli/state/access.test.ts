import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { accessHere } from "../../../lib/cli/state/access.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { createRecord } from "../../../lib/run/record.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("a run is cancelled where it runs: not on another machine, nor where a server carries it out", async (t) => {
  const { dir, layout, bucketId: bucket_id } = await makeBucket(t);
  const start = { bucket_id, kind: "build", params: {}, actor: { address: "me", via: "cli" }, requestId: null } as const;
  const [id, ofServer] = [uuidV7(), uuidV7()];
  await createRecord(layout, { ...start, id, origin: "cli" });
  await createRecord(layout, { ...start, id: ofServer, origin: "server" });
  await using _ = await acquireLock(layout, id, "build");
  const elsewhere = { ...JSON.parse(readFileSync(layout.lock, "utf8")), boot_id: "another start", host: "elsewhere" };
  writeFileSync(layout.lock, JSON.stringify(elsewhere));
  const bucket = await accessHere(dir);
  for (const [run, why] of [
    [id, /: it runs on elsewhere: cancel it there$/],
    [ofServer, /: a server carries it out: give --server/],
  ] as const)
    await assert.rejects(bucket.cancel(run), { code: "run_not_active", message: why });
});
