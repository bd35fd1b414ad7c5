import { LINE_FIELDS } from "../../audit/line.ts";
import { described, integer, nullable, object, optional, string, withExample } from "../../core/shape.ts";
import { TIME } from "../../run/progress.ts";
import { ID } from "../../run/record.ts";

const HASH_TEXT = withExample(string(), "9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab");
const COUNT_OF = integer({ min: 1 });

/** A line of the audit, as the API answers it. */
export const AUDIT_LINE = object({
  n: described(COUNT_OF, "Its number: 1 and up, over all files"),
  at: described(TIME, "When it was written"),
  prev: described(HASH_TEXT, "The hash of the line before; of the first line zeros"),
  hash: described(HASH_TEXT, "The SHA-256 of the line"),
  key: described(string(), "The fingerprint of the key that has signed it"),
  ...LINE_FIELDS,
  bucket: optional(ID),
  run: optional(ID),
  happened: described(optional(TIME), "When it happened, where it could be written only later"),
});

/** Where the audit ends, and the key that it is signed with. */
export const AUDIT_END = object({
  n: described(integer({ min: 0 }), "The number of the last line"),
  at: described(string(), "When it was written; empty where there is none"),
  hash: HASH_TEXT,
  public_key: described(string(), "What a verification needs, in base64"),
  fingerprint: string(),
  trouble: described(nullable(string()), "Why nothing can be written, so that nothing can be changed; null where all is well"),
});

/** A file of the audit. */
export const AUDIT_FILE = object({ name: withExample(string(), "2026-11.jsonl"), size_bytes: integer({ min: 0 }) });
