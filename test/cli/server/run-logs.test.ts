import assert from "node:assert/strict";
import { test } from "node:test";
import { writeLines } from "../../../lib/cli/server/run-logs.ts";

test("lines are written in pieces of about 64 KiB, and as they are", async () => {
  const line = { text: "x".repeat(1_023) };
  const pieces: string[] = [];
  const lines = async function* () {
    for (let count = 0; count < 130; count++) yield line;
  };
  await writeLines(lines(), (text) => pieces.push(text));
  assert.deepEqual(
    pieces.map(({ length }) => length / 1_024),
    [64, 64, 2],
  );
  assert.equal(pieces.join(""), `${line.text}\n`.repeat(130));
});
