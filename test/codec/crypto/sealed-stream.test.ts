import assert from "node:assert/strict";
import { createDecipheriv, createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { CHUNK_BYTES, openedStream, sealedStream } from "../../../lib/codec/crypto/sealed-stream.ts";
import { randomly, seeded } from "../../helpers/random.ts";

const SEALED_CHUNK = CHUNK_BYTES + 16;
const HEADER = Buffer.from("what stands in clear\n");
const key = randomBytes(32);

async function* pieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function whole(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(stream));
}

/** The sealed bytes behind the header. */
async function sealed(plain: Buffer): Promise<Buffer> {
  const bytes = await whole(sealedStream(key, HEADER, pieces(plain, 1_000)));
  assert.deepEqual(bytes.subarray(0, HEADER.length), HEADER);
  return bytes.subarray(HEADER.length);
}

const opened = (bytes: Buffer, { header = HEADER, by = key } = {}) => whole(openedStream(by, header, pieces(bytes, 7_777)));

test("a sealed stream of any length opens to what was sealed, and shows nothing of it", async () => {
  const random = seeded();
  for (const length of [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 200_000]) {
    const plain = randomly(random, length);
    const bytes = await sealed(plain);
    assert.deepEqual(await opened(bytes), plain, `${length} bytes`);
    assert.ok(length < 16 || !bytes.includes(plain.subarray(0, 16)));
  }
});

test("the nonce of a chunk is its number, and in its last byte whether it is the last; the header is bound to it", async () => {
  const bytes = await sealed(Buffer.alloc(CHUNK_BYTES + 3, 7));
  for (const [nonce, chunk, length] of [
    ["000000000000000000000000", bytes.subarray(0, SEALED_CHUNK), CHUNK_BYTES],
    ["000000000000000000000101", bytes.subarray(SEALED_CHUNK), 3],
  ] as const) {
    const decipher = createDecipheriv("aes-256-gcm", key, Buffer.from(nonce, "hex"), { authTagLength: 16 });
    decipher.setAAD(createHash("sha256").update(HEADER).digest()).setAuthTag(chunk.subarray(-16));
    const plain = Buffer.concat([decipher.update(chunk.subarray(0, -16)), decipher.final()]);
    assert.deepEqual(plain, Buffer.alloc(length, 7));
  }
});

test("a tag that was cut short is refused, and why is kept", async () => {
  const bytes = await sealed(Buffer.alloc(0));
  assert.equal(bytes.length, 16);
  for (let length = 0; length < 16; length++)
    await assert.rejects(opened(bytes.subarray(0, length)), (error: Error) => error.cause instanceof Error, String(length));
});

test("any flipped bit, another header, another key: nothing of the chunk is handed out, and no end", async () => {
  const random = seeded();
  const plain = randomly(random, 3 * CHUNK_BYTES + 100);
  const bytes = await sealed(plain);
  const refused = async (changed: Buffer, how = {}) => {
    const seen: Uint8Array[] = [];
    const reading = async () => {
      for await (const piece of openedStream(key, HEADER, pieces(changed, 9_999))) seen.push(piece);
    };
    await assert.rejects(Object.keys(how).length > 0 ? opened(changed, how) : reading(), { code: "failed" });
    const read = Buffer.concat(seen);
    assert.deepEqual(read, plain.subarray(0, read.length));
    assert.ok(read.length <= 3 * CHUNK_BYTES);
  };
  for (let round = 0; round < 300; round++) {
    const changed = Buffer.from(bytes);
    const at = Math.floor(random() * changed.length);
    changed[at] = (changed[at] as number) ^ (1 << Math.floor(random() * 8));
    await refused(changed);
  }
  await refused(bytes, { by: randomBytes(32) });
  await refused(bytes, { header: Buffer.from("what stands in cleaR\n") });
});

test("a chunk that is removed, doubled or swapped, and an end that is cut off or added, are found", async () => {
  const random = seeded();
  for (const length of [2 * CHUNK_BYTES, 4 * CHUNK_BYTES + 5]) {
    const bytes = await sealed(randomly(random, length));
    const chunks: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += SEALED_CHUNK) chunks.push(bytes.subarray(at, at + SEALED_CHUNK));
    for (let one = 0; one < chunks.length; one++) {
      await assert.rejects(opened(Buffer.concat(chunks.toSpliced(one, 1))), { code: "failed" }, `without ${one}`);
      await assert.rejects(opened(Buffer.concat(chunks.slice(0, one))), { code: "failed" }, `up to ${one}`);
      await assert.rejects(
        opened(Buffer.concat(chunks.toSpliced(one, 0, chunks[one] as Buffer))),
        { code: "failed" },
        `twice ${one}`,
      );
      for (let other = one + 1; other < chunks.length; other++) {
        const swapped = chunks.with(one, chunks[other] as Buffer).with(other, chunks[one] as Buffer);
        await assert.rejects(opened(Buffer.concat(swapped)), { code: "failed" }, `${one} for ${other}`);
      }
    }
    for (let round = 0; round < 50; round++) {
      await assert.rejects(opened(bytes.subarray(0, Math.floor(random() * bytes.length))), { code: "failed" });
      await assert.rejects(opened(Buffer.concat([bytes, randomly(random, 1 + Math.floor(random() * 40))])), { code: "failed" });
    }
  }
});

test("a stream is sealed and opened as it is read: never more than a few chunks are held", async () => {
  const piece = randomBytes(CHUNK_BYTES);
  const many = 200;
  let given = 0;
  async function* long() {
    for (; given < many; given++) yield piece;
  }
  async function* behindHeader() {
    let isHeader = true;
    for await (const chunk of sealedStream(key, HEADER, long())) {
      if (!isHeader) yield chunk;
      isHeader = false;
    }
  }
  let taken = 0;
  for await (const chunk of openedStream(key, HEADER, behindHeader())) {
    assert.equal(chunk.length, CHUNK_BYTES);
    taken++;
    assert.ok(given - taken <= 4, `${given - taken} chunks are held`);
  }
  assert.equal(taken, many);
});
