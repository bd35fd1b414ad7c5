import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, printTable, toStderr, toStdout } from "../base/terminal.ts";
import type { BucketAccess } from "./access.ts";

/** `ops snapshot list`. Answers exit code 1 where a snapshot cannot be used. */
export async function listSnapshots(bucket: BucketAccess, input: Parsed): Promise<number> {
  const items = await bucket.snapshots();
  const damaged = items.filter(({ error }) => error !== null);
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) toStdout("there are no snapshots; make one with `ops snapshot create`\n");
  else {
    const rows = items.map(({ name, created_at, size_bytes, seal, signer, own, note }) => {
      return [name, created_at, size_bytes, seal?.for ?? "no", own ? "here" : (signer ?? "no"), note];
    });
    printTable(["name", "created_at", "size_bytes", "sealed", "signed", "note"], rows);
  }
  for (const { error } of damaged) toStderr(`ops: ${error}\n`);
  return damaged.length === 0 ? EXIT.done : EXIT.failed;
}

/** `ops snapshot delete <snapshot>`. */
export async function deleteSnapshot(bucket: BucketAccess, input: Parsed): Promise<number> {
  const name = await bucket.removeSnapshot(input.operands[0] ?? "");
  if (wantsJson(input)) printJson({ name });
  else toStdout(`snapshot ${name} is removed\n`);
  return EXIT.done;
}
