import type { Database } from "../bucket/database.ts";
import type { Layout } from "../bucket/layout.ts";
import { sleep } from "../core/async.ts";
import { Failure } from "../core/errors.ts";

const TRIES = 3;
const PAUSE_MS = 50;

/**
 * Opens a bucket's database for reading. The server never waits inside SQLite, whose calls are synchronous, but tries
 * up to three times; then, or for a bucket that is not initialised or has another schema, the failure of
 * `openForReading`. The caller closes it.
 */
export async function openBucket(layout: Layout): Promise<Database> {
  const { openForReading } = await import("../bucket/database.ts");
  for (let attempt = 1; ; attempt++) {
    try {
      return openForReading(layout.database);
    } catch (error) {
      const busy = error instanceof Failure && error.code === "database_busy";
      if (!busy || attempt === TRIES) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

/** Throws `bucket_not_initialized`, `schema_upgrade_required` or `schema_too_new` unless runs can work in the bucket. */
export async function requireReady(layout: Layout): Promise<void> {
  (await openBucket(layout)).close();
}
