import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import { Failure } from "../../core/errors.ts";

/** Every chunk but the last holds exactly so many bytes. */
export const CHUNK_BYTES = 64 * 1024;
const STREAM_CIPHER = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * A stream sealed with AES-256-GCM in chunks under a key that seals nothing else. The nonce of a chunk is its number and,
 * in the last byte, whether it is the last one: so a chunk that was removed, doubled, moved or cut off opens nowhere. The
 * `header`, which stands before the chunks in clear, is bound to each of them.
 */
export async function* sealedStream(
  key: Buffer,
  header: Uint8Array,
  plain: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const bound = headerSum(header);
  yield header;
  let number = 0;
  for await (const { chunk, isLast } of chunksOf(plain, CHUNK_BYTES)) {
    const cipher = createCipheriv(STREAM_CIPHER, key, chunkNonce(number++, isLast)).setAAD(bound);
    yield Buffer.concat([cipher.update(chunk), cipher.final(), cipher.getAuthTag()]);
  }
}

/**
 * What {@link sealedStream} sealed; `sealed` begins behind the header. Nothing of a chunk is handed out before all of it is
 * known to be right, and no end before the last chunk is. Throws `failed` for another key or any altered bit.
 */
export async function* openedStream(
  key: Buffer,
  header: Uint8Array,
  sealed: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const bound = headerSum(header);
  let number = 0;
  for await (const { chunk, isLast } of chunksOf(sealed, CHUNK_BYTES + TAG_BYTES)) {
    yield openedChunk(key, bound, { chunk, number, isLast });
    number++;
  }
}

function openedChunk(key: Buffer, bound: Buffer, { chunk, number, isLast }: Chunk & { number: number }): Buffer {
  try {
    const decipher = createDecipheriv(STREAM_CIPHER, key, chunkNonce(number, isLast), { authTagLength: TAG_BYTES })
      .setAAD(bound)
      .setAuthTag(chunk.subarray(-TAG_BYTES));
    return Buffer.concat([decipher.update(chunk.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch (cause) {
    throw new Failure("failed", "it was altered or cut off, or is sealed with another key", { cause });
  }
}

function headerSum(header: Uint8Array): Buffer {
  return createHash("sha256").update(header).digest();
}

function chunkNonce(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeBigUInt64BE(BigInt(number), NONCE_BYTES - 9);
  nonce[NONCE_BYTES - 1] = isLast ? 1 : 0;
  return nonce;
}

interface Chunk {
  chunk: Buffer;
  isLast: boolean;
}

/** Cuts a stream into chunks of `size` bytes; the last one, which there always is, may have fewer. Holds two at most. */
async function* chunksOf(source: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Chunk> {
  let filled = 0;
  let chunk = Buffer.alloc(size);
  for await (const piece of source)
    for (let at = 0; at < piece.length; ) {
      if (filled === size) {
        yield { chunk, isLast: false };
        [chunk, filled] = [Buffer.alloc(size), 0];
      }
      const taken = piece.subarray(at, at + size - filled);
      chunk.set(taken, filled);
      filled += taken.length;
      at += taken.length;
    }
  yield { chunk: chunk.subarray(0, filled), isLast: true };
}
