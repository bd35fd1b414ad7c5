import assert from "node:assert/strict";
import { type Block, missingLine, play } from "../../scripts/page.ts";

/** Plays all blocks of a page and expects of each what the page says. Answers what each has printed. */
export async function plays(folder: string, blocks: readonly Block[], settings = ""): Promise<string[]> {
  const played = await play(folder, blocks, settings);
  for (const one of played) {
    const where = `line ${one.block.line}:\n${one.block.commands}\n${one.output}`;
    assert.ok(one.isRight, where);
    assert.equal(missingLine(one), undefined, where);
  }
  assert.equal(played.length, blocks.length);
  return played.map(({ output }) => output);
}
