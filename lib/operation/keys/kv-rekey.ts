import { randomBytes } from "node:crypto";
import { hasEarlierRequests } from "../../bucket/base/certificates.ts";
import { loadKvKey } from "../../bucket/kv/kv-access.ts";
import {
  countSealed,
  dropOldKvKey,
  rekeyingSince,
  type SealedCounts,
  switchKvKey,
  walkSealed,
} from "../../bucket/kv/kv-rekey.ts";
import { type SealKey, sealingKey } from "../../codec/crypto/seal.ts";
import { Failure } from "../../core/errors.ts";
import { exists } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { faultPoint } from "../../core/self.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";

/**
 * Changes the bucket's key (docs/keys.md): a new `secrets/kv.key`, and everything that is sealed is sealed anew. Until the end
 * both keys open. Cut off anywhere, all stays readable, and the next rekey goes on with the same new key. Throws `failed`
 * where certificates are recorded in a form that holds only for the present key, and `cancelled`.
 */
export const rekey: Operation = async (context, params) => {
  const { dry_run } = parametersOf("kv_rekey", params);
  const { db, layout, log } = context;
  /** It goes on with a change that an earlier run has begun. */
  const resumed = (await rekeyingSince(layout)) !== undefined;
  if (hasEarlierRequests(db)) {
    const why = "an earlier version of ops has recorded certificates by it, and the next build would renew them all";
    throw new Failure("failed", `Cannot change secrets/kv.key: ${why}; run \`ops build\` first`);
  }
  if (dry_run) {
    const key = await loadKvKey(layout);
    const present = sealingKey(key);
    // Until the new key seals, all is sealed with what is going to be the key before.
    const isSwitched = !Buffer.isBuffer(key) && !(await exists(layout.kvKeyNew));
    const counts = await walk(context, "plan", isSwitched ? key : [randomBytes(present.length), present]);
    log.info(`${resumed ? "the change of kv.key would go on" : "kv.key would be new"}; to be sealed anew: ${amount(counts)}`);
    return { ...counts, resumed };
  }
  await switchKvKey(layout);
  log.info(resumed ? "the change of kv.key goes on: the new key seals, both open" : "kv.key is new: it seals, both keys open");
  const counts = await walk(context, "seal", await loadKvKey(layout));
  log.info(`sealed anew: ${amount(counts)}`);
  await endChange(context, counts);
  for (const name of counts.unreadable) log.warn(`neither key opens ${name}: it stays as it is; store the value anew`);
  return { ...counts, resumed };
};

/** Drops the key before, once everything opens with the new one alone. */
async function endChange(context: OperationContext, { unreadable }: SealedCounts): Promise<void> {
  const { db, layout, log } = context;
  const left = await walk(context, "check", sealingKey(await loadKvKey(layout)));
  if (left.unreadable.length > unreadable.length)
    throw new Failure("failed", "Cannot drop the kv.key before: not everything opens with the new one; run it again");
  // Pages that SQLite has set free still hold what was sealed with the key before.
  db.script("VACUUM");
  const checkpoint = db.get<{ busy: number }>("PRAGMA wal_checkpoint(TRUNCATE)");
  const held = "the database is being read, and its log still holds what was sealed with that key";
  if (checkpoint?.busy !== 0) throw new Failure("failed", `Cannot drop the kv.key before: ${held}; run it again`);
  faultPoint("rekey: compacted");
  await dropOldKvKey(layout);
  log.info("everything opens with the new kv.key alone: the one before is removed");
}

async function walk(context: OperationContext, phase: "plan" | "seal" | "check", key: SealKey): Promise<SealedCounts> {
  const { db, signal, progress } = context;
  const total = countSealed(db);
  const onProgress = (done: number) => progress.report({ phase, done, total });
  onProgress(0);
  return await walkSealed({ db, key, signal, isReseal: phase === "seal", onProgress });
}

function amount({ values, contents }: SealedCounts): string {
  return `${counted(values, "value")}, older versions included, and ${counted(contents, "content")} of files`;
}
