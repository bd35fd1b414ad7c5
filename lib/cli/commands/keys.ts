import { AS_JSON, BUCKET_DIR, type Command } from "../base/flags.ts";
import { runCommand } from "./run-command.ts";

/** Commands that change the keys of a bucket. */
export const KEY_COMMANDS: readonly Command[] = [
  runCommand("kv_rekey", { name: "kv rekey", short: { dry_run: "n" } }),
  runCommand("ca_rotate", { name: "ca rotate", short: { dry_run: "n" } }),
  runCommand("ssh_key_rotate", { name: "ssh-key rotate", short: { concurrency: "c", dry_run: "n" } }),
  {
    name: "ca import",
    changes: true,
    summary: "Make an existing certificate authority, with its key, that of the bucket",
    operands: [
      { name: "certificate", help: "Its certificate in PEM; others that jobs are to trust may follow in the file" },
      { name: "key", help: "Its private key in PEM, without a passphrase (default: stdin)", optional: true },
    ],
    flags: [
      BUCKET_DIR,
      { name: "rotate", help: "Trust it beside the CA in use first; `ops ca rotate` goes on from there" },
      { name: "replace", help: "Put it in the place of the CA in use at once" },
      AS_JSON,
    ],
    hereOnly: true,
    run: async (input) => (await import("../bucket/ca.ts")).importAuthorityCommand(input),
  },
];
