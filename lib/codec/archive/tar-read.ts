import { Failure } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { quote } from "../../core/shape.ts";
import { BLOCK_BYTES, checksumOf, EXTENSION, FIELDS, type Field, fieldOf, paddingOf, USTAR } from "./tar-write.ts";

/** Magic and version of GNU tar, which keeps times where POSIX has the prefix. */
const GNU = "ustar  \0";

/** The types of entries that stand for something in a file system, in words. */
const TYPE_NAMES: ReadonlyMap<string, string> = new Map([
  ["0", "file"],
  ["\0", "file"],
  ["1", "hard link"],
  ["2", "symbolic link"],
  ["3", "character device"],
  ["4", "block device"],
  ["5", "directory"],
  ["6", "FIFO"],
]);

/** One entry of an archive. Its path is not checked in any way: it may be absolute, hold `..` or control characters. */
export interface TarEntry {
  /** Counted from 1, extended headers left out. */
  index: number;
  /** Without the slash at the end of a directory. */
  path: string;
  /** `file`, `directory`, or the name of another type, such as `symbolic link`. */
  type: string;
  mode: number;
  /** Bytes of content, as the archive claims; 0 for everything but a file. */
  size: number;
  /** To be read before the next entry is asked for; unread bytes are skipped then. */
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  /** The whole content, where the stream has brought the whole already: then `content` need not be read. */
  whole: Uint8Array | undefined;
}

const EXTENSIONS: ReadonlySet<string> = new Set(Object.values(EXTENSION));
/** The most zeros behind the end of an archive; GNU tar fills up to 10 KiB. */
const END_PADDING_BYTES = 1024 * 1024;
const EXTENSION_BYTES = 64 * 1024;

/** The failure `invalid_source` for an entry of an archive; the details name the entry. */
export function archiveFailure(index: number, path: string | undefined, message: string): Failure {
  const where = `entry ${index}`;
  const shown = path === undefined ? "" : ` (${quote(path).slice(1, -1)})`;
  return new Failure("invalid_source", `archive ${where}${shown}: ${message}`, { details: [{ path: path ?? where, message }] });
}

/**
 * The entries of a tar stream, in order: ustar, with the pax and GNU headers for long names and sizes. Holds at most
 * one chunk and one extended header (64 KiB) in memory. Throws `invalid_source` for anything but a sound archive: a wrong
 * checksum or number, a name that is not UTF-8, a cut end, anything but zeros after the end.
 */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const reader = new ByteReader(source);
  try {
    for (let index = 1; ; index++) {
      const header = await readHeader(reader, index);
      if (!header) return await readEnd(reader, index);
      const whole = reader.take(header.size);
      const unread = { bytes: whole ? 0 : header.size };
      yield { ...header, content: whole ? [whole] : contentOfEntry(reader, header, unread), whole };
      if (unread.bytes > 0) for await (const _ of contentOfEntry(reader, header, unread));
      const padding = paddingOf(header.size);
      if (!reader.skip(padding) && (await reader.exactly(padding)).length < padding) throw cutOff(header);
    }
  } finally {
    await reader.close();
  }
}

type EntryHeader = Omit<TarEntry, "content" | "whole">;

/** What extended headers say about the next entry. */
interface Extended {
  path?: string;
  size?: number;
}

/** The next entry's header with its extended headers applied; undefined at the first end block. */
async function readHeader(reader: ByteReader, index: number): Promise<EntryHeader | undefined> {
  const extended: Extended = {};
  const seen = new Set<string>();
  for (;;) {
    const block = reader.take(BLOCK_BYTES) ?? (await reader.exactly(BLOCK_BYTES));
    if (block.length < BLOCK_BYTES) throw archiveFailure(index, undefined, "the archive is cut off before its end blocks");
    if (isZero(block) && seen.size === 0) return undefined;
    checkHeader(block, index);
    const type = latin1Of(block, "type");
    if (!EXTENSIONS.has(type)) return entryHeader(block, extended, index);
    if (seen.has(type)) throw archiveFailure(index, undefined, "it has two extended headers of one kind");
    seen.add(type);
    Object.assign(extended, await readExtension(reader, block, type, index));
  }
}

function checkHeader(block: Buffer, index: number): void {
  const magic = latin1Of(block, "magic");
  const isTar = magic === USTAR || magic === GNU;
  if (!isTar || numberField(block, "checksum") !== checksumOf(block))
    throw archiveFailure(index, undefined, "its header is damaged or not one of a ustar archive");
}

function entryHeader(block: Buffer, extended: Extended, index: number): EntryHeader {
  const path = extended.path ?? pathOf(block, index);
  const fail = (message: string) => archiveFailure(index, path, message);
  const letter = latin1Of(block, "type");
  const type = TYPE_NAMES.get(letter);
  const mode = numberField(block, "mode");
  const size = extended.size ?? numberField(block, "size");
  if (type === undefined) throw fail(`its type ${quote(letter)} is not known`);
  if (mode === undefined || size === undefined) throw fail("its mode or size is not a number");
  if (type !== "file" && size > 0) throw fail(`a ${type} cannot have content`);
  return { index, path: type === "directory" ? path.replace(/\/$/, "") : path, type, mode, size };
}

async function readExtension(reader: ByteReader, block: Buffer, type: string, index: number): Promise<Extended> {
  const size = numberField(block, "size");
  const fail = (message: string) => archiveFailure(index, undefined, message);
  if (size === undefined || size > EXTENSION_BYTES) throw fail(`an extended header may have at most ${EXTENSION_BYTES} bytes`);
  const body = await reader.exactly(size + paddingOf(size));
  if (body.length < size + paddingOf(size)) throw fail("the archive is cut off in an extended header");
  const content = body.subarray(0, size);
  if (type === EXTENSION.longName) return { path: decodeName(untilZero(content), index) };
  if (type === EXTENSION.longLink) return {};
  const records = paxRecords(content, index);
  const isGlobal = type === EXTENSION.globalPax;
  if (isGlobal && (records.path !== undefined || records.size !== undefined))
    throw fail("a global extended header cannot name or size entries");
  return records;
}

/** Records of the form `<length> <key>=<value>\n`; all but path and size say nothing about the content. */
function paxRecords(body: Buffer, index: number): Extended {
  const found: Extended = {};
  const fail = (message: string) => archiveFailure(index, undefined, message);
  for (let at = 0; at < body.length; ) {
    const [prefix, digits] = /^([1-9]\d{0,5}) /.exec(body.toString("latin1", at, at + 7)) ?? [];
    const end = at + Number(digits);
    const record = prefix === undefined ? undefined : body.subarray(at + prefix.length, end);
    const equals = record?.indexOf("=") ?? -1;
    if (!record || end > body.length || body[end - 1] !== 0x0a || equals < 1) throw fail("its extended header is damaged");
    const key = record.toString("latin1", 0, equals);
    const value = record.subarray(equals + 1, -1);
    if (key === "path") found.path = decodeName(value, index);
    if (key === "size") found.size = decimal(value.toString("latin1"));
    if (key === "size" && found.size === undefined) throw fail("its size is not a number");
    if (key.startsWith("GNU.sparse.")) throw fail("sparse files are not supported; pack without --sparse");
    at = end;
  }
  return found;
}

function decimal(text: string): number | undefined {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(value) ? value : undefined;
}

/** The number in a field, octal or (first bit set) in base 256; undefined where it is neither or too large. */
function numberField(block: Buffer, field: Field): number | undefined {
  const [from, length] = FIELDS[field];
  if (block[from] === 0x80) {
    const value = BigInt(`0x${block.toString("hex", from + 1, from + length)}`);
    return value <= Number.MAX_SAFE_INTEGER ? Number(value) : undefined;
  }
  // A regular expression for each number would cost as much as the rest of a header.
  const end = from + length;
  let at = from;
  let value = 0;
  while (at < end && block[at] === BLANK) at++;
  const first = at;
  for (; at < end && isOctal(block[at] as number); at++) value = value * 8 + (block[at] as number) - ZERO;
  const behind = at;
  while (at < end && (block[at] === BLANK || block[at] === 0)) at++;
  return behind > first && at === end ? value : undefined;
}

const [BLANK, ZERO] = [0x20, 0x30];

function isOctal(byte: number): boolean {
  return byte >= ZERO && byte < ZERO + 8;
}

function pathOf(block: Buffer, index: number): string {
  const name = decodeName(untilZero(fieldOf(block, "name")), index);
  const hasPrefix = block[FIELDS.prefix[0]] !== 0 && latin1Of(block, "magic") === USTAR;
  const prefix = hasPrefix ? decodeName(untilZero(fieldOf(block, "prefix")), index) : "";
  return prefix === "" ? name : `${prefix}/${name}`;
}

function latin1Of(block: Buffer, field: Field): string {
  const [from, length] = FIELDS[field];
  return block.toString("latin1", from, from + length);
}

function untilZero(bytes: Buffer): Buffer {
  const end = bytes.indexOf(0);
  return end < 0 ? bytes : bytes.subarray(0, end);
}

function decodeName(bytes: Buffer, index: number): string {
  const text = decodeUtf8(bytes);
  if (text !== undefined) return text;
  throw archiveFailure(index, bytes.toString("latin1"), "its name is not UTF-8");
}

function isZero(block: Uint8Array): boolean {
  return block.every((byte) => byte === 0);
}

/** Reads what comes after the first end block: a second one and padding, all of it zeros. */
async function readEnd(reader: ByteReader, index: number): Promise<void> {
  const fail = (message: string) => archiveFailure(index, undefined, message);
  const second = await reader.exactly(BLOCK_BYTES);
  if (second.length < BLOCK_BYTES) throw fail("the archive is cut off before its second end block");
  let padding = 0;
  for (let chunk: Uint8Array | undefined = second; chunk; chunk = await reader.some(BLOCK_BYTES)) {
    padding += chunk.length;
    if (!isZero(chunk) || padding > END_PADDING_BYTES) throw fail("there is data after the archive's end");
  }
}

/** The bytes of one entry's content that nobody has read yet. */
async function* contentOfEntry(reader: ByteReader, header: EntryHeader, unread: { bytes: number }): AsyncGenerator<Uint8Array> {
  while (unread.bytes > 0) {
    const chunk = await reader.some(unread.bytes);
    if (!chunk) throw cutOff(header);
    unread.bytes -= chunk.length;
    yield chunk;
  }
}

function cutOff({ index, path, size }: EntryHeader): Failure {
  return archiveFailure(index, path, `the archive is cut off in its content of ${size} bytes`);
}

/** Cuts a stream of chunks of any size into the pieces that are asked for. */
class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #chunk: Uint8Array = Buffer.alloc(0);
  /** So many bytes of the chunk were taken already. */
  #at = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Exactly `count` bytes, where they were read already. */
  take(count: number): Buffer | undefined {
    if (!this.skip(count)) return undefined;
    return Buffer.from(this.#chunk.buffer, this.#chunk.byteOffset + this.#at - count, count);
  }

  /** Leaves out the next bytes, where they were read already; else answers false. */
  skip(count: number): boolean {
    if (this.#chunk.length - this.#at < count) return false;
    this.#at += count;
    return true;
  }

  /** At least one and at most `limit` bytes; undefined at the end of the stream. */
  async some(limit: number): Promise<Uint8Array | undefined> {
    while (this.#chunk.length === this.#at) {
      const next = await this.#source.next();
      if (next.done) return undefined;
      [this.#chunk, this.#at] = [next.value, 0];
    }
    const piece = this.#chunk.subarray(this.#at, this.#at + limit);
    this.#at += piece.length;
    return piece;
  }

  /** Exactly `count` bytes, fewer only at the end of the stream. */
  async exactly(count: number): Promise<Buffer> {
    const held = this.take(count);
    if (held) return held;
    const pieces: Uint8Array[] = [];
    for (let left = count; left > 0; ) {
      const piece = await this.some(left);
      if (!piece) break;
      pieces.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(pieces);
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
