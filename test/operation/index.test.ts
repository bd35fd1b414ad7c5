import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { perform } from "../../lib/operation/index.ts";
import { makeBucket } from "../helpers/workspace.ts";

test("staged files that a killed run has left are gone before the next run begins its work", async (t) => {
  const { dir, layout, bucketId } = await makeBucket(t, { workers: ["10.0.0.1"], jobs: { web: {} } });
  const left = path.join(layout.tmp, "workers", "secret");
  mkdirSync(path.dirname(left), { recursive: true });
  writeFileSync(left, "secret");
  const seen: [text: string, isLeft: boolean][] = [];
  const outcome = await perform(
    { runId: uuidV7(), kind: "build", bucketId, bucketDir: dir, revision: null, by: "a test", params: {} },
    {
      launcher: new Launcher(process.env),
      server: null,
      signal: new AbortController().signal,
      activity: (text) => seen.push([text, existsSync(left)]),
      progress: () => {},
    },
  );
  assert.equal(outcome.ok, true, outcome.error?.message);
  const [[begins] = [""], ...work] = seen;
  assert.match(begins, /^build of bucket /);
  assert.ok(work.length > 0);
  assert.deepEqual(
    work.filter(([, isLeft]) => isLeft),
    [],
  );
  assert.deepEqual(readdirSync(layout.tmp), []);
});
