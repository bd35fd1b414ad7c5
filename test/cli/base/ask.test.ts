import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { opsAtTerminal } from "../../helpers/terminal.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

/** What the terminal of opsAtTerminal tells of a process that the signal ended. */
const ENDED_BY_INT = 256 - constants.signals.SIGINT;

async function builtBucket(t: TestContext): Promise<string> {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  makeWorkspace(dir, { workers: [{ host: "127.0.0.1", connection: "local" }], jobs: { web: {} } });
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  return dir;
}

test("a secret that is typed at a terminal is not shown, and is stored without the last newline", async (t) => {
  const dir = await builtBucket(t);
  const words = ["kv", "set-secret", "web", "token", "--bucket-dir", dir];
  const typed = (text: string) => opsAtTerminal(words, [["it is not shown:", text]]);
  const stored = async () =>
    (await ops(["cat", "kv", "get", "secrets/job/web", "token", "--reveal", "--json", "--bucket-dir", dir])).stdout;
  const { code, shown } = await typed("sesame\ropen\tsesame\r\x04");
  assert.equal(code, 0, shown);
  assert.doesNotMatch(shown, /sesame|open/);
  assert.equal(JSON.parse(await stored()).value, "sesame\nopen\tsesame");
  const left = await typed("other\r\x03");
  assert.equal(left.code, ENDED_BY_INT);
  assert.doesNotMatch(left.shown, /other|is stored/);
  assert.equal(JSON.parse(await stored()).value, "sesame\nopen\tsesame");
});

test("a private key that is pasted at a terminal is not shown", async (t) => {
  const dir = await builtBucket(t);
  const file = path.join(temporaryFolder(t), "key");
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file]);
  const key = readFileSync(file, "utf8");
  const { code, shown } = await opsAtTerminal(
    ["ssh-key", "set", "--bucket-dir", dir],
    [["it is not shown:", `${key.replaceAll("\n", "\r")}\x04`]],
  );
  assert.equal(code, 0, shown);
  assert.match(shown, /the key is stored: /);
  for (const line of key.trim().split("\n")) assert.ok(!shown.includes(line), shown);
});

test("Ctrl-C at a question cancels a command that would end its work in order, and is no answer", async (t) => {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  const file = path.join(temporaryFolder(t), "passphrase");
  writeFileSync(file, "correct horse battery", { mode: 0o600 });
  assert.equal((await ops(["snapshot", "create", "--passphrase-file", file, "--bucket-dir", dir])).code, 0);
  const [name = ""] = readdirSync(path.join(dir, ".ops", "snapshots"));
  const { code, shown } = await opsAtTerminal(
    ["snapshot", "verify", name, "--bucket-dir", dir],
    [["Passphrase of the snapshot: ", "\x03"]],
  );
  assert.equal(code, 130, shown);
  assert.doesNotMatch(shown, /give --passphrase-file/);
});
