import { timingSafeEqual } from "node:crypto";

/** Compares two texts in a time that tells nothing about where they differ. Their lengths are no secret. */
export function equalText(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
