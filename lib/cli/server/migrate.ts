import { migrateEnvironments, takeRoot } from "../../bucket/source/root.ts";
import { Failure } from "../../core/errors.ts";
import { exists, realPlace } from "../../core/files.ts";
import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, toStdout, visible } from "../base/terminal.ts";

/**
 * `ops server migrate`: turns environments into buckets, and says of each what it did. Throws `failed` while a server has
 * the root. Answers 1 where an environment stays as it is.
 */
export async function migrateRootCommand(input: Parsed): Promise<number> {
  const root = realPlace(input.operands[0] ?? "");
  if (!(await exists(root))) throw new Failure("usage", `there is no folder ${root}`);
  const dryRun = input.switches.has("dry-run");
  await using _ = dryRun ? undefined : await takeRoot(root, "stop it first");
  const items = [];
  for await (const item of migrateEnvironments(root, dryRun)) {
    items.push(item);
    const { id, label, problem } = item;
    const done = dryRun ? "would become a bucket" : "is a bucket now";
    if (!wantsJson(input))
      toStdout(`${visible([id, label].join(" ").trimEnd())}: ${problem === null ? done : `stays: ${problem}`}\n`);
  }
  if (wantsJson(input)) printJson({ dry_run: dryRun, items });
  else if (items.length === 0) toStdout(`no environments are left in ${root}\n`);
  return items.some(({ problem }) => problem !== null) ? EXIT.failed : EXIT.done;
}
