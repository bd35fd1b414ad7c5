import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf, Output } from "../../lib/core/streams.ts";

async function* pieces(...all: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* all;
}

test("only a line feed ends a line, wherever the pieces of the text end", async () => {
  const text = "\ufeffä😀\r\n\n\u2028b\vc\nlast";
  const bytes = Buffer.from(text);
  for (let at = 0; at <= bytes.length; at++)
    assert.deepEqual(await Array.fromAsync(linesOf(pieces(bytes.subarray(0, at), bytes.subarray(at)))), text.split("\n"));
  assert.deepEqual(await Array.fromAsync(linesOf(pieces(Buffer.from("a\n")))), ["a"]);
  assert.deepEqual(await Array.fromAsync(linesOf(pieces())), []);
});

test("a line of 64 Mi characters is read, a longer one is refused", async () => {
  const most = Buffer.alloc(64 * 1024 * 1024, "a");
  let count = 0;
  for await (const line of linesOf(pieces(most, Buffer.from("\nb")))) count += line.length;
  assert.equal(count, most.length + 1);
  await assert.rejects(Array.fromAsync(linesOf(pieces(most, Buffer.from("a")))), { code: "failed", message: /64 Mi/ });
});

test("of an output the first bytes are kept: all that may be, and not one more", () => {
  const kept = (...chunks: string[]) => {
    const output = new Output("stdout", { keepBytes: 4 }, new AbortController());
    for (const chunk of chunks) output.take(Buffer.from(chunk));
    return output.finish();
  };
  assert.deepEqual([kept("ab", "cd"), kept("ab", "cde"), kept("abcd", "e"), kept()], ["abcd", "abcd", "abcd", ""]);
});

test("whoever takes the lines and throws gets no further line, and the error is told", () => {
  const [trouble, lines] = [new AbortController(), [] as string[]];
  const onLine = (line: string) => {
    lines.push(line);
    throw new Error("enough");
  };
  const output = new Output("stdout", { onLine }, trouble);
  output.take(Buffer.from("a\nb\nc"));
  output.finish();
  assert.deepEqual([lines, trouble.signal.reason?.message], [["a"], "enough"]);
});
