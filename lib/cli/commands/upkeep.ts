import { type RunParams, type RunSecrets, SNAPSHOT_TRUST } from "../../run/protocol.ts";
import { BUCKET_DIR, bucketDir, type CommandRow, EXIT, type Flag, type Operand, type Parsed } from "../base/flags.ts";
import { inBucket } from "./in-bucket.ts";
import { type Names, runCommand } from "./run-command.ts";

const OF_SERVER: Flag[] = [
  {
    name: "server",
    value: "URL",
    mayLack: true,
    help: "Examine a server: its root and what it is started with (default: the service of this machine); with =URL a bucket there",
  },
  { name: "root", value: "DIR", help: "With --server: the folder of the buckets" },
  { name: "token-file", value: "FILE", help: "With --server: the file of the API token" },
  { name: "tls-cert", value: "FILE", help: "With --server: the PEM certificate" },
  { name: "tls-key", value: "FILE", help: "With --server: the PEM key of the certificate" },
  { name: "totp-secret-file", value: "FILE", help: "With --server: the file of the TOTP secret" },
];
const SNAPSHOT: Operand = { name: "snapshot", help: "Its name as `ops snapshot list` shows it, or the path of its file" };

const PASSPHRASE_FILE: Flag = {
  name: "passphrase-file",
  value: "FILE",
  help: "File of the passphrase that the snapshot is sealed for; - is stdin (default: typed unseen)",
};
const SEAL_PASSPHRASE_FILE: Flag = {
  ...PASSPHRASE_FILE,
  help: "Seal it for the passphrase in this file, which only its owner may read; - is stdin",
};
/** How a sealed snapshot is opened. */
const OPENING_FLAGS: Flag[] = [
  PASSPHRASE_FILE,
  {
    name: "identity-file",
    value: "FILE",
    help: "File of the private key that the snapshot is sealed for (`ops snapshot keygen`)",
  },
];
const TRUST_FLAGS: Flag[] = [
  { name: "signer", value: "FINGERPRINT", help: SNAPSHOT_TRUST.signer.schema.description as string },
  { name: "unsigned", help: SNAPSHOT_TRUST.unsigned.schema.description as string },
];

const RESTORE_RUN = runCommand("snapshot_restore", {
  name: "snapshot restore",
  summary: "Restore a snapshot: into an empty folder all of it, else all but the source",
  operands: [SNAPSHOT],
  async complete(params, _, names) {
    params.snapshot = await names.snapshotNamed(String(params.snapshot));
  },
  flags: OPENING_FLAGS,
  secrets: openingOf,
});

async function openingOf(input: Parsed, { snapshot }: RunParams, names: Names): Promise<RunSecrets> {
  const { openingSecrets } = await import("../bucket/snapshots.ts");
  return await openingSecrets(input, await names.sealOf(String(snapshot)));
}

/** In a bucket the restore is a run; in an empty folder it makes a bucket. */
const RESTORE: CommandRow = {
  ...RESTORE_RUN,
  async run(input) {
    const { isEmptyPlace } = await import("../../bucket/snapshots/restore.ts");
    const { restoreCommand } = await import("../bucket/snapshots.ts");
    return (await isEmptyPlace(bucketDir(input))) ? restoreCommand(input) : (RESTORE_RUN.run?.(input) ?? EXIT.failed);
  },
};

/** Commands that keep a bucket in order. */
export const UPKEEP_COMMANDS: readonly CommandRow[] = [
  {
    name: "check",
    summary: "Say what a build would find wrong in the workspace, as file:line:column; stores nothing and needs no init",
    flags: [BUCKET_DIR],
    run: async (input) => (await import("../bucket/workspace.ts")).checkCommand(input),
  },
  {
    name: "fmt",
    changes: ({ switches }) => !switches.has("check"),
    summary:
      "Format manifest.json of jobs and templates, workers.json, disabled.json, schedules.json and notify.json, and print the files that change",
    flags: [BUCKET_DIR, { name: "check", help: "Change nothing; exit with 1 where a file would change" }],
    run: async (input) => (await import("../bucket/workspace.ts")).formatCommand(input),
  },
  {
    name: "migrate",
    changes: ({ switches }) => switches.has("write"),
    summary: "Show what changes in a workspace of the earlier form, and with --write change it",
    operands: [{ name: "folder", help: "The folder of the bucket (default: the current folder)", optional: true }],
    flags: [
      { name: "write", help: "Change the files" },
      { name: "dry-run", help: "Only show the differences (default)" },
    ],
    run: async (input) => (await import("../bucket/workspace.ts")).migrateCommand(input),
  },
  {
    name: "schema",
    summary: "Print the JSON Schema of a file of the workspace, for editors",
    operands: [
      {
        name: "file",
        help: "Either manifest, workers, disabled, schedules or notify",
        choices: ["manifest", "workers", "disabled", "schedules", "notify"],
      },
    ],
    noJson: true,
    run: async (input) => (await import("../bucket/workspace.ts")).schemaCommand(input),
  },
  {
    name: "doctor",
    summary: "Examine this host, the bucket and its workers, or a server, and give advice for each finding",
    flags: [BUCKET_DIR, ...OF_SERVER],
    run: async (input) => (await import("../bucket/doctor.ts")).doctorCommand(input),
    remote: async (input, target) => (await import("../remote/upkeep.ts")).remoteDoctor(input, target),
  },
  runCommand("drift", { name: "drift" }),
  runCommand("gc", { name: "gc" }),
  runCommand("snapshot_create", {
    name: "snapshot create",
    flags: [{ name: "passphrase", help: "Seal it for a passphrase, which is typed unseen" }, SEAL_PASSPHRASE_FILE],
    secrets: async (input) => (await import("../bucket/snapshots.ts")).sealingSecrets(input),
  }),
  {
    name: "snapshot keygen",
    summary: "Make a key pair that snapshots are sealed for: the private key goes into a file, the public one is printed",
    operands: [{ name: "file", help: "File of the private key, made with mode 0600; keep it off the server" }],
    run: async (input) => (await import("../bucket/snapshots.ts")).keygenCommand(input),
  },
  inBucket({
    name: "snapshot list",
    summary: "Show the snapshots of the bucket, newest first",
    work: async () => (await import("../state/snapshots.ts")).listSnapshots,
  }),
  {
    name: "snapshot verify",
    summary: "Restore a snapshot into a temporary bucket and compare; the bucket itself is not touched",
    operands: [SNAPSHOT],
    flags: [BUCKET_DIR, ...TRUST_FLAGS, ...OPENING_FLAGS],
    run: async (input) => (await import("../bucket/snapshots.ts")).verifySnapshotCommand(input),
    remote: async (input, target) => (await import("../remote/upkeep.ts")).remoteVerifySnapshot(input, target),
  },
  RESTORE,
  inBucket({
    name: "snapshot delete",
    changes: true,
    summary: "Remove a snapshot of the bucket",
    operands: [{ name: "snapshot", help: "Its name as `ops snapshot list` shows it" }],
    work: async () => (await import("../state/snapshots.ts")).deleteSnapshot,
  }),
];

/** Commands that change the keys of a bucket. */
export const KEY_COMMANDS: readonly CommandRow[] = [
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
    ],
    hereOnly: true,
    run: async (input) => (await import("../bucket/ca.ts")).importAuthorityCommand(input),
  },
];
