import assert from "node:assert/strict";
import { test } from "node:test";
import { signalProcess } from "../../lib/core/process.ts";
import { blocksOf, END, missingLine, PageHosts, play, START_PAGE } from "../../scripts/page.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";

test("docs/start.md: every command does what the page says, on three hosts over ssh", async (t) => {
  const folder = temporaryFolder(t);
  const page = await PageHosts.start(folder);
  t.after(async () => {
    await page.stop();
    for (const pid of processesIn(folder)) signalProcess(pid, "SIGKILL");
  });
  const blocks = blocksOf(START_PAGE);
  const played = await play(folder, [...blocks, END], page.settings);
  for (const one of played) {
    const where = `docs/start.md, line ${one.block.line}:\n${one.block.commands}\n${one.output}`;
    assert.ok(one.isRight, where);
    assert.equal(missingLine(one), undefined, where);
  }
  assert.equal(played.length, blocks.length + 1);
});
