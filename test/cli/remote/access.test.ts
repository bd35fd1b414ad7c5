import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { accessOn } from "../../../lib/cli/remote/access.ts";
import type { BucketAccess } from "../../../lib/cli/state/access.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = uuidV7();
const REVISION = {
  id: ID,
  created_at: "2026-11-24T00:00:00Z",
  run_id: ID,
  ...{ size_bytes: 1, file_count: 1, sha256: "aa", build_status: "succeeded", note: null, commit: null, by: null },
  ...{ current: true, last_successful: true },
};

/** A bucket of a server that answers each request with this. */
async function bucketOf(t: TestContext, answer: unknown): Promise<BucketAccess> {
  const server = createServer((_, response) => response.end(JSON.stringify(answer))).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => server.close());
  const tokenFile = path.join(temporaryFolder(t), "token");
  writeFileSync(tokenFile, TOKEN, { mode: 0o600 });
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const unset = { caFile: undefined, folderCa: undefined, totp: undefined };
  return await accessOn({ address, bucket: ID, fromFolder: false, tokenFile, ...unset });
}

const never = new AbortController().signal;
const READS: Readonly<Record<string, (bucket: BucketAccess) => Promise<unknown>>> = {
  place: (bucket) => bucket.place(),
  runs: (bucket) => bucket.runs({ limit: 1 }),
  run: (bucket) => bucket.run(ID),
  log: (bucket) => bucket.log(ID, 0, never),
  lines: (bucket) => bucket.lines(ID, { tail: true, limit: 1 }),
  revisions: (bucket) => bucket.revisions(),
  diff: (bucket) => bucket.diff(ID, undefined),
  summary: (bucket) => bucket.summary(),
  line: (bucket) => bucket.line(),
  sshKey: (bucket) => bucket.sshKey(),
  storeSshKey: (bucket) => bucket.storeSshKey("key"),
  snapshots: (bucket) => bucket.snapshots(),
  info: (bucket) => bucket.info(),
  view: (bucket) => bucket.view("jobs", {}),
  key: (bucket) => bucket.key("a", "b", false),
};

for (const [name, read] of Object.entries(READS))
  test(`an answer of another form is one sentence, not a wrong output: ${name}`, async (t) => {
    const bucket = await bucketOf(t, { items: [{ id: { no: "text" } }], next_cursor: null, columns: ["id"] });
    await assert.rejects(read(bucket), {
      code: "failed",
      message: /^Cannot understand the server's answer: \S+ .*; is the server of another version\?$/,
    });
  });

test("fields that a newer server adds stay", async (t) => {
  const items = [{ ...REVISION, signed_by: "somebody" }];
  const bucket = await bucketOf(t, { items, next_cursor: null });
  assert.deepEqual(await bucket.revisions(), items);
});
