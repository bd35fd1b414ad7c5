/** DER (ITU-T X.690), as far as X.509 certificates need it. */

/** One value: identifier octet, length, contents. */
export function element(tag: number, ...contents: Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag, ...lengthOf(content.length)]), content]);
}

function lengthOf(size: number): number[] {
  if (size < 0x80) return [size];
  const octets: number[] = [];
  for (let rest = size; rest > 0; rest = Math.floor(rest / 256)) octets.unshift(rest % 256);
  return [0x80 | octets.length, ...octets];
}

/** An ordered list of values. */
export const sequence = (...contents: Uint8Array[]): Buffer => element(0x30, ...contents);

/** A list of values without an order. The caller gives several values sorted. */
export const set = (...contents: Uint8Array[]): Buffer => element(0x31, ...contents);

/** `true`. DER leaves out a `false` that is the default. */
export const yes = (): Buffer => element(0x01, Buffer.from([0xff]));

/** An integer of at least 0, given as its octets without leading zeros; one octet for 0. */
export function integer(octets: Uint8Array): Buffer {
  const needsSign = ((octets[0] as number) & 0x80) !== 0;
  return element(0x02, Buffer.from(needsSign ? [0] : []), octets);
}

/** Bits, of which the last `unused` do not count. */
export const bitString = (content: Uint8Array, unused = 0): Buffer => element(0x03, Buffer.from([unused]), content);

/** Bytes. */
export const octetString = (content: Uint8Array): Buffer => element(0x04, content);

/** NULL. */
export const nothing = (): Buffer => element(0x05);

/** An object identifier such as `2.5.4.3`. */
export function oid(text: string): Buffer {
  const [first, second, ...rest] = text.split(".").map(Number) as [number, number, ...number[]];
  return element(0x06, Buffer.from([first * 40 + second, ...rest].flatMap(base128)));
}

function base128(number: number): number[] {
  const octets = [number & 0x7f];
  for (let rest = number >> 7; rest > 0; rest >>= 7) octets.unshift((rest & 0x7f) | 0x80);
  return octets;
}

/** Text. */
export const utf8 = (text: string): Buffer => element(0x0c, Buffer.from(text, "utf8"));

/** A time to the second: UTCTime through 2049, GeneralizedTime from 2050 on (RFC 5280, 4.1.2.5). */
export function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/\.\d+Z$|[-:T]/g, "");
  return date.getUTCFullYear() < 2050
    ? element(0x17, Buffer.from(`${digits.slice(2)}Z`))
    : element(0x18, Buffer.from(`${digits}Z`));
}

/** A value that was read: `whole` is all of it, `content` what is inside. */
interface Element {
  tag: number;
  whole: Buffer;
  content: Buffer;
}

/** The values that follow each other in `bytes`. Throws `RangeError` where a value is longer than the bytes. */
export function elements(bytes: Buffer): Element[] {
  const found: Element[] = [];
  for (let at = 0; at < bytes.length; ) {
    const short = bytes.readUInt8(at + 1);
    const octets = short < 0x80 ? 0 : short & 0x7f;
    const size = octets === 0 ? short : bytes.readUIntBE(at + 2, octets);
    const [begin, end] = [at + 2 + octets, at + 2 + octets + size];
    if (end > bytes.length) throw new RangeError("a DER value is longer than its bytes");
    const whole = bytes.subarray(at, end);
    found.push({ tag: bytes.readUInt8(at), whole, content: bytes.subarray(begin, end) });
    at = end;
  }
  return found;
}
