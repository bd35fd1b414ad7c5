import { EXIT, type Parsed } from "../base/flags.ts";
import { printAnswer, printList, toStderr } from "../base/terminal.ts";
import type { BucketAccess } from "./access.ts";

/** `ops snapshot list`. Answers exit code 1 where a snapshot cannot be used. */
export async function listSnapshots(bucket: BucketAccess, input: Parsed): Promise<number> {
  const items = await bucket.snapshots();
  const damaged = items.filter(({ error }) => error !== null);
  printList(input, items, "there are no snapshots; make one with `ops snapshot create`", {
    name: ({ name }) => name,
    created_at: ({ created_at }) => created_at,
    size_bytes: ({ size_bytes }) => size_bytes,
    sealed: ({ seal }) => seal?.for ?? "no",
    signed: ({ own, signer }) => (own ? "here" : (signer ?? "no")),
    note: ({ note }) => note,
  });
  for (const { error } of damaged) toStderr(`ops: ${error}\n`);
  return damaged.length === 0 ? EXIT.done : EXIT.failed;
}

/** `ops snapshot delete <snapshot>`. */
export async function deleteSnapshot(bucket: BucketAccess, input: Parsed): Promise<number> {
  const name = await bucket.removeSnapshot(input.operands[0] ?? "");
  return printAnswer(input, { name }, `snapshot ${name} is removed\n`);
}
