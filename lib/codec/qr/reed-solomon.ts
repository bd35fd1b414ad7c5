/** x^8 + x^4 + x^3 + x^2 + 1: the field of 256 elements that QR codes are computed in. */
const FIELD_POLYNOMIAL = 0x11d;

/** The `count` words that let a reader of a QR code correct errors in these words (ISO/IEC 18004, Reed-Solomon). */
export function correctionWords(words: readonly number[], count: number): number[] {
  const divisor = generator(count);
  const remainder: number[] = Array(count).fill(0);
  for (const word of words) {
    const factor = word ^ (remainder.shift() as number);
    remainder.push(0);
    for (const [at, coefficient] of divisor.entries())
      remainder[at] = (remainder[at] as number) ^ product(coefficient, factor);
  }
  return remainder;
}

/** (x - 1)(x - 2)(x - 4)…: its coefficients from the second highest power down; the highest one is 1. */
function generator(count: number): number[] {
  const coefficients: number[] = [...Array(count - 1).fill(0), 1];
  for (let root = 1, at = 0; at < count; at++, root = product(root, 2))
    for (let power = 0; power < count; power++)
      coefficients[power] = product(coefficients[power] as number, root) ^ (coefficients[power + 1] ?? 0);
  return coefficients;
}

function product(a: number, b: number): number {
  let result = 0;
  for (let bit = 7; bit >= 0; bit--) {
    result = (result << 1) ^ ((result >> 7) * FIELD_POLYNOMIAL);
    if ((b >> bit) & 1) result ^= a;
  }
  return result;
}
