import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { feed, linesOf, Output, type Uncut } from "../../lib/core/streams.ts";

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
  assert.deepEqual([kept("abc", "d"), kept("abc", "def")], ["abcd", "abcd"]);
});

test("of an output a MiB is kept where nothing else is said, nothing where that is said, and as much as secrets allow", () => {
  const most = 1024 * 1024;
  const kept = (text: string, options: { keepBytes?: number; secrets?: Uncut }) => {
    const output = new Output("stdout", options, new AbortController());
    for (let at = 0; at < text.length; at += 100_000) output.take(Buffer.from(text.slice(at, at + 100_000)));
    return output.finish().length;
  };
  assert.deepEqual([kept("x".repeat(most), {}), kept("x".repeat(most + 1), {})], [most, most]);
  assert.deepEqual([kept("abc", { keepBytes: 0 }), kept("abc", { keepBytes: 1 })], [0, 1]);
  const seen: string[] = [];
  const cut = (bytes: Buffer, limit: number) => {
    seen.push(bytes.toString());
    return limit - 1;
  };
  const output = new Output("stdout", { keepBytes: 4, secrets: { longest: 3, cut } }, new AbortController());
  for (const chunk of ["abcde", "fgh", "ijklmn"]) output.take(Buffer.from(chunk));
  assert.equal(output.finish(), "abc");
  assert.deepEqual([seen, kept("abcd", { keepBytes: 4, secrets: { longest: 3, cut } })], [["abcdefg"], 4]);
  assert.equal(kept("abcd", { keepBytes: 0, secrets: { longest: 3, cut } }), 0);
  assert.equal(seen.length, 1, "what is not cut, or not kept, is not looked at");
});

/** The lines that an output has handed out after each piece, and at its end. */
function handed(texts: readonly (string | Buffer)[], secrets?: Uncut): string[][] {
  const lines: string[] = [];
  const output = new Output("stderr", { onLine: (line) => lines.push(line), ...(secrets && { secrets }) }, new AbortController());
  const steps = texts.map((text) => {
    output.take(Buffer.from(text));
    return lines.splice(0);
  });
  output.finish();
  return [...steps, lines];
}

test("a line is handed out as soon as its end is there, an empty one too, and the last one at the end", () => {
  assert.deepEqual(handed(["a", "b\n\nc", "de\n"]), [[], ["ab", ""], ["cde"], []]);
  assert.deepEqual(handed(["\n\n", "x\ny"]), [["", ""], ["x"], ["y"]]);
});

test("a line of 64 KiB is handed out whole, a longer one in parts, and no character is cut", () => {
  const most = 64 * 1024;
  const lengths = (...texts: (string | Buffer)[]) => handed(texts).map((lines) => lines.map((line) => Buffer.byteLength(line)));
  assert.deepEqual(lengths("a".repeat(most), "\nb"), [[], [most], [1]]);
  assert.deepEqual(lengths(`${"a".repeat(most)}\nb\n`), [[most, 1], []]);
  assert.deepEqual(lengths("a".repeat(most + 1), "\n"), [[most], [1], []]);
  assert.deepEqual(lengths(`${"a".repeat(2 * most)}bc`), [[most, most], [2]]);
  assert.deepEqual(lengths(`\n${"a".repeat(most + 1)}`), [[0, most], [1]]);
  for (const [character, before] of [
    ["\u00e4", 1],
    ["\u20ac", 2],
    ["\u{1f600}", 1],
    ["\u{1f600}", 3],
    ["\u{1f600}", 4],
  ] as const) {
    const text = `${"a".repeat(most - before)}${character}bc`;
    const first = most - (before < Buffer.byteLength(character) ? before : 0);
    assert.deepEqual(lengths(text), [[first], [Buffer.byteLength(text) - first]], `${character} ${before} bytes before the end`);
  }
  const noText = Buffer.concat([Buffer.alloc(most - 3, "a"), Buffer.alloc(8, 0x80)]);
  assert.deepEqual(
    handed([noText]).map(([line]) => line?.length),
    [most, 5],
    "bytes that are no text are cut where they may be",
  );
});

test("a long line waits for as many bytes more as a secret may have, and is cut where secrets allow", () => {
  const most = 64 * 1024;
  const secrets = { longest: 10, cut: (_: Buffer, limit: number) => limit - 2 };
  const lengths = (...texts: string[]) => handed(texts, secrets).map((lines) => lines.map(({ length }) => length));
  assert.deepEqual(lengths("a".repeat(most + 10), "a"), [[], [most - 2], [13]]);
  assert.deepEqual(lengths("a".repeat(most + 1)), [[], [most - 2, 3]]);
  assert.deepEqual(lengths(`${"a".repeat(most)}\n`, `${"a".repeat(most + 1)}\n`), [[most], [most - 2, 3], []]);
});

test("a command gets its whole input; where the source fails it is told, and the command does not see an end", async () => {
  const fed = async (input: Parameters<typeof feed>[1], isGone = false) => {
    const [received, trouble] = [[] as Buffer[], new AbortController()];
    const stdin = new Writable({
      write(chunk: Buffer, _, done) {
        received.push(chunk);
        done(isGone ? new Error("it has ended") : null);
      },
    });
    await feed(stdin, input, trouble);
    return [Buffer.concat(received).toString(), stdin.writableFinished, trouble.signal.reason?.message];
  };
  assert.deepEqual(await fed("gr\u00fc\u00dfe"), ["gr\u00fc\u00dfe", true, undefined]);
  assert.deepEqual(await fed(new Uint8Array([97, 98])), ["ab", true, undefined]);
  assert.deepEqual(await fed(pieces(Buffer.from("a"), Buffer.from("b"))), ["ab", true, undefined]);
  async function* failing() {
    yield Buffer.from("a");
    throw new Error("the disk is gone");
  }
  assert.deepEqual(await fed(failing()), ["a", false, "the disk is gone"]);
  const neverBegun = { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error("no such file")) }) };
  assert.deepEqual(await fed(neverBegun), ["", false, "no such file"]);
  assert.deepEqual(await fed(pieces(Buffer.from("a"), Buffer.from("b")), true), ["a", false, undefined]);
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
