import { hash, randomBytes } from "node:crypto";
import { Failure } from "../core/errors.ts";
import { firstOf } from "../core/plain-text.ts";
import { quote } from "../core/shape.ts";

const PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** True for a UUID of any version in lower case. */
export function isUuid(text: string): boolean {
  return PATTERN.test(text);
}

/** A name-based UUID (RFC 9562, version 5): the same namespace and name always give the same id. */
export function uuidV5(namespace: string, name: string): string {
  const space = Buffer.from(namespace.replaceAll("-", ""), "hex");
  return format(hash("sha1", Buffer.concat([space, Buffer.from(name)]), "buffer"), 5);
}

/** A UUID whose order is its time of creation (RFC 9562, version 7), `now` in milliseconds. */
export function uuidV7(now: number = Date.now()): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  return format(bytes, 7);
}

/** The time in a UUID of version 7, in milliseconds. */
export function timeOfUuid(id: string): number {
  return Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);
}

/** How much of an id has to be given. */
export const LEAST_LETTERS = 4;
const MOST_CANDIDATES = 10;

/**
 * The one of `ids` that `given` is, begins or ends, in whatever case; at least 4 letters of it. Throws `run_not_found` (or
 * that of a revision or a snapshot) where there is none, and `usage` with the candidates where there are several.
 */
export function idNamed(given: string, ids: readonly string[], kind: "run" | "revision" | "snapshot" | "proposal"): string {
  const wanted = given.toLowerCase();
  const found = ids.filter((id) => id.toLowerCase().startsWith(wanted) || id.toLowerCase().endsWith(wanted));
  const exact = found.find((id) => id.toLowerCase() === wanted);
  const unclear = (why: string) => new Failure("usage", `Cannot tell which ${kind} ${quote(given)} means: ${why}`);
  if (exact !== undefined) return exact;
  if (wanted.length < LEAST_LETTERS) throw unclear(`give at least ${LEAST_LETTERS} letters of its id`);
  const [only, ...others] = found;
  if (only === undefined) throw new Failure(`${kind}_not_found`, `there is no ${kind} ${quote(given)}`);
  if (others.length === 0) return only;
  throw unclear(`it may be ${firstOf(found, MOST_CANDIDATES)}`);
}

function format(bytes: Buffer, version: number): string {
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | (version << 4);
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
}
