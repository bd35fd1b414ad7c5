import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ops } from "../../../scripts/local-server.ts";
import { HOSTILE, OBEYED } from "../../helpers/hostile.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const CLI = fileURLToPath(new URL("../../../lib/cli/", import.meta.url));
/** The files that write directly, and how often: text that only ops has made, or bytes to a pipe. */
const RAW: Readonly<Record<string, number>> = {
  // The third writes lines of logs, which are escaped before, and exports for a pipe.
  "base/terminal.ts": 3,
  // Nothing: what was written before has gone out then, or failed.
  "main.ts": 1,
  // The server's address, and its log, whose fields are written out.
  "server/server.ts": 2,
  // The stack of a hook's own error, which is output of a hook.
  "server/hook-run.ts": 1,
  // A file, byte for byte, to a pipe.
  "state/catalog.ts": 1,
  // A fixed sentence of a process that loads no more than it needs.
  "server/keep.ts": 1,
  // A QR code that ops has painted.
  "server/totp-enroll.ts": 1,
};

test("commands write through one place, which leaves nothing in that a terminal would obey", () => {
  const found = readdirSync(CLI, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) => {
      const count = readFileSync(path.join(CLI, name), "utf8").match(/process\.std(out|err)\.write\(/g)?.length;
      return count === undefined ? [] : [[name, count]];
    });
  assert.deepEqual(Object.fromEntries(found), RAW);
});

test("what a key of the KV store or an argument holds is written out, in a table, in JSON and in errors", async (t) => {
  const { dir, kv } = await makeBucket(t);
  const store = kv();
  store.put("vars/job/web", "key", HOSTILE);
  store.flush();
  const get = ["cat", "kv", "get", "vars/job/web"];
  for (const args of [[...get, "key"], [...get, "key", "--json"], [...get, HOSTILE], [HOSTILE]]) {
    const { stdout, stderr } = await ops([...args, "--bucket-dir", dir]);
    assert.match(stdout + stderr, /52;c;aGk=/, args.join(" "));
    assert.doesNotMatch(stdout + stderr, OBEYED);
  }
});

test("what the system refuses is failed, in a sentence and in JSON, and no internal error", async (t) => {
  const { dir } = await makeBucket(t);
  const keygen = ["snapshot", "keygen", path.join(dir, "none", "key")];
  const [told, asJson] = [await ops(keygen), await ops([...keygen, "--json"])];
  assert.deepEqual([told.code, asJson.code], [1, 1]);
  assert.match(told.stderr, /^ops: ENOENT: [^\n]+\n$/);
  assert.match(asJson.stderr, /^\{"error":"failed","message":"ENOENT: [^\n]+"\}\n$/);
});
