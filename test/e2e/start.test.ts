// The pages that a newcomer follows, played as they stand.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { signalProcess } from "../../lib/core/process.ts";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { blocksOf, ownAddresses, PageHosts, startBlocks, startBlocksOnServer } from "../../scripts/page.ts";
import { certificateFor } from "../helpers/http.ts";
import { plays } from "../helpers/pages.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { oathtoolCode, SECRET_TEXT } from "../helpers/totp.ts";
import { processesIn } from "../helpers/worker.ts";

/** A folder for what the commands of a page make and start; what still runs there at the end is killed. */
function pageFolder(t: TestContext): string {
  const folder = temporaryFolder(t);
  t.after(() => processesIn(folder).forEach((pid) => void signalProcess(pid, "SIGKILL")));
  return folder;
}

/** A server with TLS and a second factor, and the lines that let a shell sign in to it. */
async function securedServer(t: TestContext, folder: string): Promise<string> {
  const { certFile, keyFile } = await certificateFor(t);
  const [secret, token] = [path.join(folder, "totp"), path.join(folder, "token")];
  writeFileSync(secret, `${SECRET_TEXT}\n`, { mode: 0o600 });
  writeFileSync(token, "token-of-the-page\n", { mode: 0o600 });
  const flags = ["--tls-cert", certFile, "--tls-key", keyFile, "--totp-secret-file", secret];
  const server = await LocalServer.start(path.join(folder, "root"), { token: "token-of-the-page", flags });
  t.after(() => server.stop("SIGKILL"));
  const login = `ops login --token-file ${token} --ca-file ${certFile} --totp ${oathtoolCode(SECRET_TEXT)}`;
  return `export OPS_SERVER=${server.url}\n${login}\n`;
}

/** What a block printed, without what differs from time to time, and without the words of a push and of a build of its own. */
function comparable(output: string): string[] {
  const plain = output
    .replace(/^((sending|sent|the source was|the build|(build|push) (of|succeeded)) .*|revision \S+ is the source now)\n/gm, "")
    .replace(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "<id>")
    .replace(/\bno known revision\b|\brevision <id>/g, "<revision>")
    .replace(/\bpid \d+/g, "<pid>")
    .replace(/ by (?:\S+ \(process \d+\) on the command line|[\w.-]+, \w+ from \S+)/g, " by <who>")
    .replace(/\b\d+(\.\d+)? (ms|s|B|KiB|bytes)\b/g, "<amount>");
  // Hosts are dealt with at the same time, and a gate may ask once more.
  return [...new Set(plain.split("\n"))].sort();
}

test("docs/start.md: every command does what the page says, on three hosts over ssh, here and on a server", async (t) => {
  const folder = pageFolder(t);
  const page = await PageHosts.start(folder);
  t.after(() => page.stop());
  const here = await plays(path.join(folder, "here"), startBlocks(), page.settings);
  const login = await securedServer(t, folder);
  const blocks = startBlocksOnServer();
  const there = await plays(path.join(folder, "there"), blocks, page.settings + login);
  // The settings, and the blocks that the page has for a server only, have no pair.
  const all = (outputs: readonly string[]) =>
    blocks.flatMap(({ commands, mark }, index) =>
      /^(settings|server)$/.test(mark) ? [] : [[commands, ...comparable(outputs[index] ?? "")]],
    );
  assert.deepEqual(all(there), all(here));
});

test("README.md: the first service runs on this machine, and then from a server", async (t) => {
  const [address = ""] = ownAddresses();
  const blocks = blocksOf(path.join(PROGRAM_ROOT, "README.md"));
  const setUp = blocks.filter(({ commands }) => commands.startsWith("npm ci && "));
  assert.deepEqual(
    setUp.map(({ commands }) => commands),
    ["npm ci && npm run demo\n", "npm ci && npm test\n"],
  );
  const rest = blocks.filter((block) => !setUp.includes(block));
  // An address of its own, so that the usual ports are free; the token of this test must not come from outside.
  const moved = rest.map(({ commands, ...block }) => {
    const there = commands.replaceAll("127.0.0.1", address).replace("ops server ", `ops server --addr ${address}:9090 `);
    return { ...block, commands: there };
  });
  const runs = `until curl -sf http://${address}:30000/; do sleep 0.1; done\nkill $!\nwait $! || true\n`;
  const printed = await plays(pageFolder(t), [...moved, { line: 0, mark: "", commands: runs, shown: [] }]);
  const output = printed.join("");
  assert.equal(output.split(`<p>web works on ${address}.`).length, 3, output);
});

test("the picture of the README shows a gate that fails, what was put back, and the deploy that goes on", () => {
  const picture = readFileSync(path.join(PROGRAM_ROOT, "docs", "images", "start.svg"), "utf8");
  const lines = [...picture.matchAll(/<text [^>]*>([^<]*)</g)].map(([, text = ""]) => text);
  const at = (pattern: RegExp) => lines.findIndex((line) => pattern.test(line));
  const places = [
    /^\$ ops deploy --build/,
    /waiting to become healthy: .* 503/,
    /503 .health: no database at db\.example/,
    /puts the previously promoted files back/,
    /deploy failed/,
    /^deploy succeeded/,
  ].map(at);
  assert.ok(!places.includes(-1), `${places}`);
  assert.deepEqual(
    places,
    [...places].sort((a, b) => a - b),
  );
});
