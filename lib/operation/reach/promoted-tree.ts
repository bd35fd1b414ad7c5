import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { keptContent, type Promotion, recordSynced } from "../../bucket/catalog/promotions.ts";
import type { StagedFile, StagedTree } from "../../bucket/catalog/staging.ts";
import type { FileDigests } from "../../plan/changes.ts";
import type { OperationContext } from "../base/context.ts";
import type { Effects } from "./effects.ts";

/** The promoted files of an allocation. Throws `failed` where the content of one is not kept any more. */
export function promotedTree({ db, kv }: OperationContext, { hash, files }: Promotion): StagedTree {
  const staged = Object.entries(files).map(([path, digest]): StagedFile => {
    const [mode = "", sha256 = ""] = digest.split(":");
    return { path, mode: Number.parseInt(mode, 8), sha256, ...keptContent(db, kv, sha256) };
  });
  return { hash, files: staged, digests: files };
}

/** Puts promoted files back on their worker, where the files of `before` may be, and records that they are there. */
export async function putFilesBack(
  context: OperationContext,
  effects: Effects,
  { allocation, promoted, tree }: { allocation: CatalogAllocation; promoted: Promotion; tree: StagedTree },
  before: FileDigests,
): Promise<void> {
  await effects.stage(allocation, tree);
  await effects.sync(allocation, tree, before);
  const { hash, digests: files } = tree;
  const { job, id } = allocation;
  recordSynced(context.db, job, id, { hash, files, updateSeq: promoted.updateSeq });
}
