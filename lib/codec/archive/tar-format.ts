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
  /** Magic and version, see {@link USTAR} and {@link GNU}. */
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
/** Magic and version of GNU tar, which keeps times where POSIX has the prefix. */
export const GNU = "ustar  \0";

/** The types of entries that stand for something in a file system, as people call them. */
export const TYPE_NAMES: ReadonlyMap<string, string> = new Map([
  ["0", "file"],
  ["\0", "file"],
  ["1", "hard link"],
  ["2", "symbolic link"],
  ["3", "character device"],
  ["4", "block device"],
  ["5", "directory"],
  ["6", "FIFO"],
]);

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
  const field = fieldOf(header, "checksum");
  for (const byte of field) sum -= byte;
  return sum + field.length * 0x20;
}

/** How many bytes follow `size` bytes up to the end of their last block. */
export function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}
