const BLOCK_BYTES = 64 * 1024;
/** What is kept of a log: so many blocks that were read, and so much of what arrived last. */
const KEPT_BLOCKS = 48;
const TAIL_BYTES = 1024 * 1024;

/**
 * The bytes of a log that grows, of which only a bounded part is ever held. `fetchRange(from, to)` reads some of them
 * from the server.
 */
export class LogFile {
  /** How long the log is, in bytes, as far as is known. */
  size;
  /** True once it grows no more. */
  ended = false;
  #fetchRange;
  #blocks = new Map();
  #tail = new Uint8Array(0);
  #growth = Promise.withResolvers();

  constructor(size, fetchRange) {
    this.size = size;
    this.#fetchRange = fetchRange;
  }

  /** Takes what was written next; `next` is its end. Bytes that were changed on their way are read again later. */
  append(bytes, next) {
    const exact = bytes.length === next - this.size;
    const kept = exact ? this.#tail.subarray(Math.max(0, this.#tail.length + bytes.length - TAIL_BYTES)) : [];
    const tail = new Uint8Array(exact ? kept.length + bytes.length : 0);
    tail.set(kept);
    if (exact) tail.set(bytes, kept.length);
    this.#tail = tail;
    this.size = next;
    this.#tell();
  }

  end() {
    this.ended = true;
    this.#tell();
  }

  /** Resolves when the log has grown or ended. */
  grown() {
    return this.#growth.promise;
  }

  /** The bytes between two offsets of the log. */
  async read(from, to) {
    const tailStart = this.size - this.#tail.length;
    if (from >= tailStart) return this.#tail.slice(from - tailStart, to - tailStart);
    const first = Math.floor(from / BLOCK_BYTES);
    const count = Math.ceil(to / BLOCK_BYTES) - first;
    const blocks = await Promise.all(Array.from({ length: count }, (_, index) => this.#block(first + index)));
    const whole = new Uint8Array(await new Blob(blocks).arrayBuffer());
    return whole.subarray(from - first * BLOCK_BYTES, to - first * BLOCK_BYTES);
  }

  async #block(index) {
    const [from, to] = [index * BLOCK_BYTES, Math.min((index + 1) * BLOCK_BYTES, this.size)];
    const kept = this.#blocks.get(index);
    this.#blocks.delete(index);
    const block = kept?.to === to ? kept : { to, bytes: this.#fetchRange(from, to) };
    this.#blocks.set(index, block);
    for (const oldest of this.#blocks.keys()) {
      if (this.#blocks.size <= KEPT_BLOCKS) break;
      this.#blocks.delete(oldest);
    }
    try {
      return await block.bytes;
    } catch (error) {
      if (this.#blocks.get(index) === block) this.#blocks.delete(index);
      throw error;
    }
  }

  #tell() {
    const { resolve } = this.#growth;
    this.#growth = Promise.withResolvers();
    resolve();
  }
}
