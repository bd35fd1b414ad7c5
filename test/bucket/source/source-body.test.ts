import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { archiveOf } from "../../../lib/bucket/source/source.ts";
import { bytesOf } from "../../helpers/sources.ts";

const never = new AbortController().signal;

async function* streamOf(...chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

test("a plain body passes unchanged, a gzipped one unpacked, members and all", async () => {
  const text = Buffer.from("some bytes of an archive");
  const packed = gzipSync(text);
  assert.deepEqual(await bytesOf(archiveOf(streamOf(text), false, never)), text);
  assert.deepEqual(await bytesOf(archiveOf(streamOf(packed), true, never)), text);
  const twice = archiveOf(streamOf(packed.subarray(0, 9), packed.subarray(9), packed), true, never);
  assert.deepEqual(await bytesOf(twice), Buffer.concat([text, text]));
});

test("T-88 a small gzip that unpacks to more than any source is stopped", async () => {
  const member = gzipSync(Buffer.alloc(32 * 1024 * 1024));
  assert.ok(member.length < 40_000);
  const body = streamOf(...Array.from({ length: 1000 }, () => member));
  let total = 0;
  const reading = (async () => {
    for await (const chunk of archiveOf(body, true, never)) total += chunk.length;
  })();
  await assert.rejects(reading, { code: "invalid_source", message: /unpacks to more than \d+ bytes/ });
  assert.ok(total < 400 * 1024 * 1024, `${total} bytes were let through`);
});

test("T-88 a body is not held in memory while it comes in", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const sent: WeakRef<Buffer>[] = [];
  async function* body() {
    for (let at = 0; at < 100; at++) {
      const chunk = Buffer.alloc(64 * 1024, at);
      sent.push(new WeakRef(chunk));
      yield chunk;
    }
  }
  const reading = archiveOf(body(), false, never);
  for (let at = 0; at < 90; at++) assert.equal((await reading.next()).done, false);
  await nextRound();
  collect();
  const held = sent.filter((chunk) => chunk.deref() !== undefined).length;
  assert.ok(held < 10, `${held} of ${sent.length} chunks are held`);
  await reading.return(undefined);
});

test("an aborted signal keeps no listener and stops before the next chunk", async () => {
  const stop = new AbortController();
  const reading = archiveOf(streamOf(Buffer.from("a"), Buffer.from("b")), false, stop.signal);
  assert.equal((await reading.next()).done, false);
  stop.abort();
  await assert.rejects(reading.next(), { code: "cancelled" });
  assert.equal((await reading.next()).done, true);
});
