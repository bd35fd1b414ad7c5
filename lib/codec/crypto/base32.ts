const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** Characters of a last group of eight that a whole number of bytes can end with. */
const LAST_GROUP: ReadonlySet<number> = new Set([0, 2, 4, 5, 7]);

/** Bytes as base32 (RFC 4648) in capitals, without padding. */
export function base32Encode(bytes: Uint8Array): string {
  let text = "";
  let [value, bits] = [0, 0];
  for (const byte of bytes) {
    value = (value << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += ALPHABET[(value >> (bits - 5)) & 31];
  }
  return bits === 0 ? text : text + ALPHABET[(value << (5 - bits)) & 31];
}

/**
 * The bytes of a base32 text in capitals, with its padding or without. Undefined for anything that no encoder writes:
 * other characters, an impossible length, a wrong padding, bits left over that are not 0.
 */
export function base32Decode(text: string): Buffer | undefined {
  const [, digits = "", padding = ""] = /^([A-Z2-7]*)(=*)$/.exec(text) ?? [];
  const isPadded = padding === "" || (text.length % 8 === 0 && padding.length < 8);
  if (digits.length + padding.length !== text.length || !isPadded || !LAST_GROUP.has(digits.length % 8))
    return undefined;
  const bytes: number[] = [];
  let [value, bits] = [0, 0];
  for (const digit of digits) {
    value = (value << 5) | ALPHABET.indexOf(digit);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push(value >> bits);
    value &= (1 << bits) - 1;
  }
  return value === 0 ? Buffer.from(bytes) : undefined;
}
