// The pages that a newcomer follows, played as they stand.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { signalProcess } from "../../lib/core/process.ts";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { type Block, blocksOf, END, missingLine, ownAddresses, PageHosts, play, START_PAGE } from "../../scripts/page.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";

/** A folder for what the commands of a page make and start; what still runs there at the end is killed. */
function pageFolder(t: TestContext): string {
  const folder = temporaryFolder(t);
  t.after(() => processesIn(folder).forEach((pid) => void signalProcess(pid, "SIGKILL")));
  return folder;
}

/** Plays all blocks and expects of each what the page says. */
async function plays(folder: string, blocks: readonly Block[], settings = ""): Promise<string> {
  const played = await play(folder, blocks, settings);
  for (const one of played) {
    const where = `line ${one.block.line}:\n${one.block.commands}\n${one.output}`;
    assert.ok(one.isRight, where);
    assert.equal(missingLine(one), undefined, where);
  }
  assert.equal(played.length, blocks.length);
  return played.map(({ output }) => output).join("");
}

test("docs/start.md: every command does what the page says, on three hosts over ssh", async (t) => {
  const folder = pageFolder(t);
  const page = await PageHosts.start(folder);
  t.after(() => page.stop());
  await plays(folder, [...blocksOf(START_PAGE), END], page.settings);
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
  const output = await plays(pageFolder(t), [...moved, { line: 0, mark: "", commands: runs, shown: [] }]);
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
