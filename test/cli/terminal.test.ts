import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ops } from "../../scripts/local-server.ts";
import { makeBucket } from "../helpers/workspace.ts";

const CLI = fileURLToPath(new URL("../../lib/cli/", import.meta.url));
/** Who writes what nobody else has said, or bytes to a pipe. */
const RAW: Readonly<Record<string, number>> = {
  "terminal.ts": 2,
  // The log of the server, each of whose fields is written so that it can be read, and its address.
  "server.ts": 2,
  // The stack of a hook's own error, which is output of a hook.
  "hook-run.ts": 1,
  // A file, byte for byte, to a pipe.
  "catalog.ts": 1,
  // A QR code that ops has painted.
  "totp-enroll.ts": 1,
};
const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/;

test("commands write through one place, which leaves nothing in that a terminal would obey", () => {
  const found = readdirSync(CLI, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) => {
      const count = readFileSync(path.join(CLI, name), "utf8").match(
        /process\.std(out|err)\.write\(/g,
      )?.length;
      return count === undefined ? [] : [[name, count]];
    });
  assert.deepEqual(Object.fromEntries(found), RAW);
});

test("what a key of the KV store or an argument holds is written out, in a table, in JSON and in errors", async (t) => {
  const hostile = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\u009b2J\u202eabc";
  const { dir, kv } = await makeBucket(t);
  const store = kv();
  store.put("vars/job/web", "key", hostile);
  store.flush();
  const get = ["cat", "kv", "get", "vars/job/web", "key", "--bucket-dir", dir];
  for (const args of [get, [...get, "--json"], ["cat", "kv", "get", "vars/job/web", hostile], [hostile]]) {
    const { stdout, stderr } = await ops(
      args.includes("--bucket-dir") ? args : [...args, "--bucket-dir", dir],
    );
    assert.match(stdout + stderr, /52;c;aGk=/, args.join(" "));
    assert.doesNotMatch(stdout + stderr, OBEYED);
  }
});
