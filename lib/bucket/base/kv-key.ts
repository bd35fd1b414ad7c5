import { randomBytes } from "node:crypto";
import { Failure } from "../../core/errors.ts";
import { createExclusive, readBounded } from "../../core/files.ts";
import type { Layout } from "./layout.ts";

const KEY_BYTES = 32;

/** Reads the key that secrets are sealed with: `secrets/kv.key`, 32 raw bytes. */
export async function loadKvKey(layout: Layout): Promise<Buffer> {
  const key = await readBounded(layout.kvKey, 1024);
  if (!key) throw new Failure("bucket_not_initialized", "Cannot read secrets/kv.key: there is none; run `ops init`");
  if (key.length !== KEY_BYTES)
    throw new Failure("failed", `Cannot read secrets/kv.key: it has ${key.length} bytes instead of ${KEY_BYTES}`);
  return key;
}

/** Makes the key where there is none, readable by its owner only; never replaces one. */
export async function createKvKey(layout: Layout): Promise<void> {
  await createExclusive(layout.kvKey, randomBytes(KEY_BYTES));
}
