import { Failure } from "../../core/errors.ts";

/** Headers and contents are stored in whole blocks of this size. */
export const BLOCK_BYTES = 512;

/** The fields of a ustar header: where each begins and how many bytes it has. Numbers are octal text. */
export const FIELDS = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  linkName: [157, 100],
  /** Magic and version, see {@link USTAR}. */
  magic: [257, 8],
  userName: [265, 32],
  groupName: [297, 32],
  deviceMajor: [329, 8],
  deviceMinor: [337, 8],
  /** What comes before `name` and a slash; only where the magic is {@link USTAR}. */
  prefix: [345, 155],
} as const;

/** The name of a header field. */
export type Field = keyof typeof FIELDS;

/** Magic and version of POSIX. */
export const USTAR = "ustar\x0000";

/** The types of entries that describe the next one (or, the global one, all that follow). */
export const EXTENSION = { pax: "x", globalPax: "g", longName: "L", longLink: "K" } as const;

/** The bytes of one field of a header. */
export function fieldOf(header: Buffer, field: Field): Buffer {
  const [offset, length] = FIELDS[field];
  return header.subarray(offset, offset + length);
}

/** The sum of all bytes of a header, those of its checksum field counted as blanks. */
export function checksumOf(header: Buffer): number {
  let sum = 0;
  for (let at = 0; at < header.length; at++) sum += header[at] as number;
  const [from, length] = FIELDS.checksum;
  for (let at = from; at < from + length; at++) sum += 0x20 - (header[at] as number);
  return sum;
}

/** How many bytes follow `size` bytes up to the end of their last block. */
export function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** What goes into an archive: a file of exactly `size` bytes or, without `content`, a directory (size 0). */
export interface TarInput {
  /** Relative, with `/`; a directory without a slash at its end. */
  path: string;
  mode: number;
  size: number;
  /** When it was changed, in seconds since 1970 (default 0). */
  mtimeS?: number;
  content?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

const SLASH = 0x2f;

/**
 * A ustar archive of the entries in their order. The same entries give the same bytes: all belong to root. Names that
 * are long or not ASCII also get a pax header. Throws `failed` where a content does not have the size of its entry.
 */
export async function* writeTar(entries: AsyncIterable<TarInput> | Iterable<TarInput>): AsyncGenerator<Uint8Array> {
  for await (const entry of entries) {
    yield headersOf(entry);
    if (entry.content) yield* paddedContent(entry, entry.content);
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

function headersOf(entry: TarInput): Buffer {
  const path = entry.content ? entry.path : `${entry.path}/`;
  const bytes = Buffer.from(path);
  const place = splitPath(bytes);
  const header = headerOf({
    name: place?.name ?? bytes.subarray(0, FIELDS.name[1]),
    prefix: place?.prefix ?? "",
    type: entry.content ? "0" : "5",
    mode: entry.mode,
    size: entry.size,
    mtimeS: entry.mtimeS ?? 0,
  });
  const isAscii = bytes.length === path.length;
  return place && isAscii ? header : Buffer.concat([paxOf(path), header]);
}

/** Name and prefix of a path that fits into both, or undefined. */
function splitPath(path: Buffer): { name: Buffer; prefix: Buffer } | undefined {
  const [longestName, longestPrefix] = [FIELDS.name[1], FIELDS.prefix[1]];
  if (path.length <= longestName) return { name: path, prefix: Buffer.alloc(0) };
  const at = path.indexOf(SLASH, path.length - longestName - 1);
  if (at < 1 || at > longestPrefix || at === path.length - 1) return undefined;
  return { name: path.subarray(at + 1), prefix: path.subarray(0, at) };
}

function paxOf(path: string): Buffer {
  const body = paxRecord("path", path);
  const header = headerOf({ name: "PaxHeader", prefix: "", type: EXTENSION.pax, mode: 0o644, size: body.length, mtimeS: 0 });
  return Buffer.concat([header, body, Buffer.alloc(paddingOf(body.length))]);
}

/** `<length> <key>=<value>\n`, where the length counts its own digits. */
function paxRecord(key: string, value: string): Buffer {
  const rest = ` ${key}=${value}\n`;
  const others = Buffer.byteLength(rest);
  let length = others;
  while (length !== others + String(length).length) length = others + String(length).length;
  return Buffer.from(`${length}${rest}`);
}

interface HeaderValues {
  name: string | Buffer;
  prefix: string | Buffer;
  type: string;
  mode: number;
  size: number;
  mtimeS: number;
}

function headerOf(values: HeaderValues): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const put = (field: Field, value: string | Buffer) => Buffer.from(value).copy(fieldOf(header, field));
  for (const field of ["uid", "gid", "deviceMajor", "deviceMinor"] as const) put(field, octal(field, 0));
  put("mode", octal("mode", values.mode & 0o7777));
  put("size", octal("size", values.size));
  put("mtime", octal("mtime", values.mtimeS));
  put("name", values.name);
  put("prefix", values.prefix);
  put("type", values.type);
  put("magic", USTAR);
  put("checksum", `${checksumOf(header).toString(8).padStart(6, "0")}\0 `);
  return header;
}

function octal(field: Field, value: number): string {
  const digits = FIELDS[field][1] - 1;
  const text = value.toString(8).padStart(digits, "0");
  if (text.length > digits) throw new Failure("failed", `Cannot pack a file of ${value} bytes: it is too large`);
  return text;
}

async function* paddedContent(entry: TarInput, content: NonNullable<TarInput["content"]>): AsyncGenerator<Uint8Array> {
  let written = 0;
  for await (const chunk of content) {
    written += chunk.length;
    if (written > entry.size) throw sizeChanged(entry, "more");
    yield chunk;
  }
  if (written < entry.size) throw sizeChanged(entry, "fewer");
  yield Buffer.alloc(paddingOf(entry.size));
}

function sizeChanged(entry: TarInput, how: "more" | "fewer"): Failure {
  return new Failure(
    "failed",
    `Cannot pack ${entry.path}: it changed while it was read and now has ${how} than ${entry.size} bytes`,
  );
}
