import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { LocalServer, PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
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
  assert.match(still.stdout, new RegExp(`\n${ids[1]} .* succeeded +- +current, last successful +-\n$`));
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

test("a push says its note and the Git commit of the folder, which the revision and the run keep; secrets are masked", async (t) => {
  const folder = temporaryFolder(t);
  const server = await LocalServer.start(path.join(folder, "root"));
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const source = path.join(folder, "source");
  const env = { OPS_SERVE_TOKEN: server.token };
  const push = (...words: string[]) => ops(["push", server.url, "--bucket", bucket, "--dir", source, ...words], { env });
  const git = (...words: string[]) => execFileSync("git", ["-C", source, "-c", "user.name=a", "-c", "user.email=a@b", ...words]);
  const job = { "workspace/jobs/web/manifest.json": "{}", "workspace/jobs/web/Makefile": "start stop restart:\n" };
  // A push skips node_modules/, so it does not count; it sends what Git ignores otherwise.
  const others = { ".gitignore": "node_modules\n*.key\n", "workspace/jobs/web/node_modules/a/b.js": "1" };
  writeTree(source, { "workspace/workers.json": "[]", ...job, ...others });
  git("init", "-q");
  git("config", "status.showUntrackedFiles", "no");
  git("add", ".");
  git("commit", "-q", "-m", "x");
  const commit = git("rev-parse", "HEAD").toString().trim();
  assert.equal((await push()).code, 0);
  const sealed = ["kv", "set-secret", "web", "password", "--bucket-dir", path.join(folder, "root", bucket)];
  execFileSync(process.execPath, [PROGRAM, ...sealed], { input: "hunter22secret", stdio: ["pipe", "ignore", "ignore"] });
  writeTree(source, { "templates/y.key": "1", "workspace/workers.json": "[]", ...job });
  assert.equal((await push("--note", "ü <b> hunter22secret")).code, 0);
  const { body } = await server.call<{ items: Record<string, string>[] }>("GET", `/api/buckets/${bucket}/source/revisions`);
  assert.deepEqual(
    body.items.map((one) => [one.note, one.commit]),
    [
      ["ü <b> ***", `${commit}-dirty`],
      [null, commit],
    ],
  );
  const run = await server.call<{ params: object }>("GET", `/api/buckets/${bucket}/runs/${body.items[0]?.run_id}`);
  assert.deepEqual(run.body.params, { revision: body.items[0]?.id, note: "ü <b> ***", commit: `${commit}-dirty` });
  const wrong = await push("--note", "two\nlines");
  assert.deepEqual([wrong.code, wrong.stderr], [2, "ops: --note: expected one line of at most 200 characters\n"]);
  for (const [name, value] of [
    ["Ops-Note", "a%0Ab"],
    ["Ops-Note", "%ff"],
    ["Ops-Commit", "main"],
  ] as const) {
    const headers = { Authorization: `Bearer ${server.token}`, "Content-Type": "application/x-tar", [name]: value };
    const refused = await fetch(`${server.url}/api/buckets/${bucket}/push`, { method: "POST", headers, body: "x" });
    assert.deepEqual([refused.status, ((await refused.json()) as { details: { path: string }[] }).details[0]?.path], [400, name]);
  }
});
