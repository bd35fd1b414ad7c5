import { openDatabase } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { entriesOfLines, linesOfEntries, liveEntries, storeEntries } from "../../bucket/catalog/kv-transfer.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { isSecretNamespace, loadKvKey } from "../../bucket/kv/kv-access.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { counted, decodeUtf8 } from "../../core/plain-text.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import { stdinBytes } from "../base/ask.ts";
import { bucketDir, EXIT, flagList, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, toStderr, written } from "../base/terminal.ts";
import { initialisedBucket } from "./bucket.ts";
import { passphraseOf } from "./snapshots.ts";

const IMPORT_BYTES = 256 * 1024 * 1024;

/** `ops kv export`: the keys of jobs that no build writes, as JSON lines on stdout; secrets sealed, or in clear with `--reveal`. */
export async function exportKvCommand(input: Parsed): Promise<number> {
  const layout = await initialisedBucket(bucketDir(input));
  const passphrase = await passphraseOf(input, false);
  const isRevealed = input.switches.has("reveal");
  if (isRevealed && passphrase !== undefined) throw new Failure("usage", "give --passphrase-file or --reveal, not both");
  using db = await openBucket(layout);
  const kv = new KvStore(db, await loadKvKey(layout));
  const { entries, gone } = liveEntries(db, kv, flagList(input, "jobs"), Date.now());
  const secrets = entries.filter(({ namespace }) => isSecretNamespace(namespace)).length;
  if (secrets > 0 && !isRevealed && passphrase === undefined)
    throw new Failure("usage", `the export has ${counted(secrets, "secret")}: give --passphrase-file to seal, or --reveal`);
  if (!(await written(await linesOfEntries(entries, passphrase)))) return EXIT.failed;
  for (const job of gone) toStderr(`note: job ${job} is not in the catalog: its keys are left out\n`);
  toStderr(`exported ${counted(entries.length, "key")}, ${counted(secrets, "secret")} among them\n`);
  return EXIT.done;
}

/** `ops kv import`: stores what stdin holds as `ops kv export` writes it, all or nothing, under the bucket's lock. */
export async function importKvCommand(input: Parsed): Promise<number> {
  const layout = await initialisedBucket(bucketDir(input));
  const passphrase = await passphraseOf(input, false);
  const text = decodeUtf8(await stdinBytes(IMPORT_BYTES));
  if (text === undefined) throw new Failure("usage", "stdin is not UTF-8 text");
  const entries = await entriesOfLines(text, passphrase);
  await using _ = await takeBucket(layout, uuidV7(), "kv import");
  await storeIn(layout, entries);
  if (wantsJson(input)) printJson({ keys: entries.length });
  toStderr(`imported ${counted(entries.length, "key")}\n`);
  return EXIT.done;
}

async function storeIn(layout: Layout, entries: Parameters<typeof storeEntries>[2]): Promise<void> {
  using db = openDatabase(layout.database);
  storeEntries(db, new KvStore(db, await loadKvKey(layout)), entries);
}
