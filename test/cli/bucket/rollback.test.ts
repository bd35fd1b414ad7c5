import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { LocalServer, ops } from "../../../scripts/local-server.ts";
import { writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("CP-223 ops push rollback brings an earlier source back, follows its build and ends as that does", async (t) => {
  const folder = temporaryFolder(t);
  const server = await LocalServer.start(path.join(folder, "root"));
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const env = { OPS_SERVE_TOKEN: server.token };
  const source = path.join(folder, "source");
  const run = (...words: string[]) => ops(["push", ...words, server.url, "--bucket", bucket], { env });
  const live = () => readFileSync(path.join(folder, "root", bucket, "templates", "x"), "utf8");
  for (const [version, workers, code] of [
    ["one", "[]", 0],
    ["two", "nonsense", 1],
  ] as const) {
    writeTree(source, { "workspace/workers.json": workers, "templates/x": version });
    assert.equal((await run("--dir", source)).code, code);
  }
  const back = await run("rollback");
  assert.deepEqual([back.code, live()], [0, "one"], back.stderr);
  assert.match(back.stderr, /the source was rolled back; run [0-9a-f-]+ builds it\nthe build succeeded\n$/);
  assert.match(back.stdout, /rollback succeeded/);
  const { body } = await server.call<{ items: { id: string }[] }>("GET", `/api/buckets/${bucket}/source/revisions`);
  const ids = body.items.map(({ id }) => id);
  const still = await run("rollback");
  assert.deepEqual([still.code, still.stderr], [0, ""]);
  assert.match(still.stdout, /^nothing is changed: the last successful revision is the source; .*\nrevision .*\n/);
  assert.match(still.stdout, new RegExp(`\n${ids[1]} .* succeeded +\\d+  current, last successful\n$`));
  const newest = await run("rollback", "--revision", ids[0]?.slice(-8) ?? "");
  assert.deepEqual([newest.code, live()], [1, "two"]);
  for (const [words, code, sentence] of [
    [["--revision", "x"], 2, /Cannot tell which revision "x" means: give at least 4 letters/],
    [["--revision", ids[0]?.slice(0, 6) ?? ""], 2, new RegExp(`it may be ${ids.join(", ")}\n$`)],
    [["--revision", bucket], 1, /there is no revision "[0-9a-f-]+"/],
  ] as const) {
    const wrong = await run("rollback", ...words);
    assert.equal(wrong.code, code);
    assert.match(wrong.stderr, sentence);
  }
  assert.equal(live(), "two");
});
