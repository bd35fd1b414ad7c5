import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { SOURCE_LIMITS } from "./source-rules.ts";

/** Headers, padding and extended headers need at most about this much per entry. */
const OVERHEAD_BYTES = 4 * 1024;
const ARCHIVE_BYTES = SOURCE_LIMITS.bytes + SOURCE_LIMITS.entries * OVERHEAD_BYTES;

/**
 * The archive in the body of a push, unpacked if it is gzipped. Ends with `invalid_source` when the gzip is damaged or
 * holds more than any allowed source, with `cancelled` when the signal is aborted, even while the sender is silent.
 * Then the body's iterator is closed, which is not waited for; its owner may still have to answer on the connection.
 */
export async function* archiveOf(
  body: AsyncIterable<Uint8Array>,
  gzip: boolean,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const sent = untilAborted(body, signal);
  let total = 0;
  for await (const chunk of gzip ? unzipped(sent) : sent) {
    total += chunk.length;
    if (total > ARCHIVE_BYTES)
      throw new Failure("invalid_source", `the archive unpacks to more than ${ARCHIVE_BYTES} bytes`);
    yield chunk;
  }
}

async function* untilAborted(body: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => {});
  const onAbort = () => reject(cancelledFailure());
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  const iterator = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([iterator.next(), aborted]);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    // Of a sender that is silent this resolves only when it speaks again or has gone.
    iterator.return?.().catch(() => {});
  }
}

/** What a gzip stream holds. Throws `invalid_source` for one that is damaged or cut off. */
export async function* unzipped(packed: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip();
  // An error of either stream reaches the reader of the last one.
  pipeline(Readable.from(packed), gunzip).catch(() => {});
  try {
    yield* gunzip;
  } catch (error) {
    if (!(error as { code?: string }).code?.startsWith("Z_")) throw error;
    throw new Failure("invalid_source", `the archive is not readable as gzip: ${messageOf(error)}`);
  }
}
