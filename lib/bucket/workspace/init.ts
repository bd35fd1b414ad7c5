import { randomUUID } from "node:crypto";
import { chmod, mkdir } from "node:fs/promises";
import path from "node:path";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { createExclusive, exists, makePrivateFolder, refuseLink, writeAtomic } from "../../core/files.ts";
import { ensureAuthority, isAuthorityInUse } from "../base/certificates.ts";
import { type Database, migrate, openDatabase } from "../base/database.ts";
import { type Layout, layoutOf } from "../base/layout.ts";
import { SCHEMA_VERSION } from "../base/schema.ts";
import { createKvKey } from "../kv/kv-access.ts";
import { DEFAULT_BUCKET_CONF } from "./bucket-conf.ts";
import { SCHEMA_NAMES, schemaOf } from "./schemas.ts";
import { DEFAULT_OPS_CONF } from "./settings.ts";

/** The bucket's id and schema, and whether `initBucket` changed the schema. */
export type InitResult = Awaited<ReturnType<typeof initBucket>>;

/** Keeps everything but the source out of Git, above all keys and secrets. */
const GITIGNORE = `# What ops keeps here is not source; secrets/ holds private keys.
/secrets/
/data/
/logs/
/tmp/
/.ops/
/.ssh/
`;
/** For what operators edit. */
const SHARED_FOLDER = 0o755;
const SHARED_FILE = 0o644;

/**
 * Makes a folder a bucket, or upgrades one: its folders, its key, its CA and its database, and with `source` (only on
 * the command line) an ops.conf, a workspace and a .gitignore to begin with, and the JSON Schemas of this version for
 * editors. Never overwrites a file of the operator; doing it again is safe, also after a crash. The id of a new bucket is `bucketId`, below a server root the folder's name, else a random
 * UUID. Failures: `invalid_bucket_id`, `schema_too_new`, `failed` for a key or a CA that went missing or cannot be
 * used.
 */
export async function initBucket(dir: string, options: { bucketId?: string; source: boolean }) {
  const layout = layoutOf(path.resolve(dir));
  const wanted = options.bucketId ?? ((await exists(layout.bucketJson)) ? path.basename(layout.root) : undefined);
  if (wanted !== undefined && !isUuid(wanted))
    throw new Failure("invalid_bucket_id", `Cannot make a bucket: ${wanted} is not a UUID in small letters`);
  await makeFolders(layout);
  await createExclusive(layout.database, "");
  refuseLink(layout.database);
  await chmod(layout.database, 0o600);
  const { bucketId, upgraded } = migrate(layout.database, wanted ?? randomUUID());
  const other = `The database in ${layout.root} belongs to bucket ${bucketId}, not ${wanted}`;
  if (wanted !== undefined && wanted !== bucketId) throw new Failure("invalid_bucket_id", other);
  await ensureKey(layout);
  await ensureAuthority(layout, bucketId, askedOf(layout, isAuthorityInUse));
  if (options.source) await writeSource(layout);
  return { bucketId, schemaVersion: SCHEMA_VERSION, upgraded };
}

async function makeFolders(layout: Layout): Promise<void> {
  const { data, logs, runs, secrets, ssh, tmp, internal, uploads, revisions } = layout;
  for (const folder of [data, logs, runs, secrets, ssh, tmp, internal, uploads, revisions]) {
    await makePrivateFolder(folder);
    await chmod(folder, 0o700);
  }
}

/** A new key would make what was sealed with a lost one unreadable for good. */
async function ensureKey(layout: Layout): Promise<void> {
  if (await exists(layout.kvKey)) return;
  const why = `the database holds secrets sealed with ${layout.kvKey}, which is missing; bring it back from a backup`;
  const sealed = "SELECT 1 FROM key_value WHERE namespace LIKE 'secrets/%' AND deleted = 0";
  if (askedOf(layout, (db) => db.get(sealed) !== undefined)) throw new Failure("failed", `Cannot make a key: ${why}`);
  await createKvKey(layout.kvKey);
}

function askedOf<T>(layout: Layout, ask: (db: Database) => T): T {
  using db = openDatabase(layout.database);
  return ask(db);
}

async function writeSource(layout: Layout): Promise<void> {
  for (const folder of [layout.jobs, layout.templates]) await mkdir(folder, { recursive: true, mode: SHARED_FOLDER });
  await createExclusive(layout.opsConf, DEFAULT_OPS_CONF, SHARED_FILE);
  await createExclusive(layout.workersJson, "[]\n", SHARED_FILE);
  await createExclusive(layout.bucketConf, DEFAULT_BUCKET_CONF, SHARED_FILE);
  await createExclusive(path.join(layout.root, ".gitignore"), GITIGNORE, SHARED_FILE);
  await makePrivateFolder(layout.schemas);
  for (const name of SCHEMA_NAMES)
    await writeAtomic(path.join(layout.schemas, `${name}.json`), `${JSON.stringify(schemaOf(name), null, 2)}\n`);
}
