import { parseByteSize } from "../../codec/config/number.ts";
import { parseToml, type TomlTable } from "../../codec/config/toml.ts";
import { isRecipient } from "../../codec/crypto/seal-key.ts";
import type { Problem } from "../../core/errors.ts";
import {
  boolean,
  check,
  type Infer,
  integer,
  object,
  optional,
  record,
  refined,
  type Shape,
  withDefault,
} from "../../core/shape.ts";
import type { Layout } from "../base/layout.ts";
import { blank, fileName, folder, jump, line, user } from "../base/names.ts";
import { type FileProblems, Problems } from "../base/problems.ts";
import { parseSourceToml, readSource } from "../source/source-file.ts";

/** The ops.conf that init writes. A bucket without ops.conf has these settings. */
export const DEFAULT_OPS_CONF = `# How ops reaches the workers, and what it keeps. After a change: build.

# The user on the workers, the private key's file in secrets/, and whether commands there need sudo.
ssh_user = "agent"
ssh_key = "worker.key"
ssh_port = 22
use_sudo = true

# Where <worker_root>/<bucket id>/ lives on the workers.
worker_root = "/opt/worker"

# A host to go through, as [user@]host[:port], how many ssh sessions may be open at a time, and for how long connections
# are kept for the next run.
# ssh_jump = "admin@bastion.example:22"
ssh_concurrency = 32
ssh_keep_seconds = 60

# For how long a command goes on without its connection before its worker counts as unreachable, in seconds; 0 = never.
ssh_reattach_seconds = 60

# Certificates: how long they are valid and how long before their end they are renewed, in days.
certs_ttl = 60
certs_renewal_buffer = 0

# Job settings come from workspace/bucket.jobs.<selector>.conf, without a selector from bucket.jobs.conf.
# job_config_selector = "production"

# Runs to keep: at most this many, at most this many days; 0 = unlimited.
log_run_retention_count = 200
log_run_retention_days = 30

# How much a run logs of one worker's output.
run_output_limit = "64MiB"

# Snapshots: how many are kept (0 = all), and the public key that they are sealed for (\`ops snapshot keygen\`).
snapshot_keep = 0
# snapshot_recipient = "x25519:…"

# Commands in this folder work on a bucket of this server, after \`ops login\`; --local makes them work here.
# [server]
# url = "https://ops.example:9090"
# bucket = "shop/live"
# ca_file = "ca.crt"
`;

/** What init puts into `secrets/`. */
const OWN_SECRETS = /^(kv\.key|ca\.(key|crt|new))$/;
const DAYS = integer({ min: 0, max: 36_500 });
const SSH_OPTIONS =
  "KexAlgorithms|Ciphers|MACs|HostKeyAlgorithms|Compression|ConnectTimeout|ServerAliveInterval|ServerAliveCountMax";
/** The names of {@link SSH_OPTIONS}, and what is said of any other. */
const SSH_NAMES = { key: new RegExp(`^(${SSH_OPTIONS})$`), means: `one of ${SSH_OPTIONS.replaceAll("|", ", ")}` };

/** The server and the bucket that commands in this folder work on. */
export const SERVER_TABLE = object({ url: line(), bucket: optional(line()), ca_file: optional(line()) }, { unknown: "judge" });

const OPS_CONF = object(
  {
    ssh_user: withDefault(user, "agent"),
    ssh_key: withDefault(keyName(), "worker.key"),
    ssh_port: withDefault(integer({ min: 0, max: 65_535 }), 22),
    ssh_jump: optional(jump),
    ssh_options: withDefault(record(sshOption(), SSH_NAMES), {}),
    ssh_concurrency: withDefault(integer({ min: 1, max: 1_024 }), 32),
    ssh_keep_seconds: withDefault(integer({ min: 0, max: 86_400 }), 60),
    ssh_reattach_seconds: withDefault(integer({ min: 0, max: 3_600 }), 60),
    use_sudo: withDefault(boolean(), false),
    worker_root: withDefault(folder, "/opt/worker"),
    certs_ttl: withDefault(DAYS, 60),
    certs_renewal_buffer: withDefault(DAYS, 0),
    /** The part of a file name between `bucket.jobs.` and `.conf`, or nothing. */
    job_config_selector: withDefault(blank(fileName), ""),
    log_format: withDefault(line(), "kv"),
    log_run_retention_count: withDefault(integer({ min: 0 }), 200),
    log_run_retention_days: withDefault(integer({ min: 0 }), 30),
    run_output_limit: withDefault(byteCount(), 64 * 1024 * 1024),
    snapshot_keep: withDefault(integer({ min: 0, max: 10_000 }), 0),
    snapshot_recipient: optional(recipient()),
    /** Only the command line of people looks at it. */
    server: optional(SERVER_TABLE),
  },
  { unknown: "judge" },
);

/** Reads ops.conf; throws `ErrInvalidOpsConf` with every problem of the file in its details. */
export async function loadOpsConf(layout: Layout): Promise<{ settings: OpsConf; warnings: Problem[] }> {
  const problems = new Problems();
  const settings = await readOpsConf(layout, problems);
  problems.throwIfAny();
  return { settings, warnings: problems.warnings };
}

/** Like {@link loadOpsConf}, but collects the problems; the settings are then the defaults. */
export async function readOpsConf(layout: Layout, problems: Problems): Promise<OpsConf> {
  const found = problems.in("ops.conf", "ErrInvalidOpsConf");
  const table = await readSource(parseSourceToml, layout, found);
  return table ? checkOpsConf(table, found) : defaults();
}

/** The settings in an ops.conf that was read already; with problems the defaults. */
export function checkOpsConf(table: TomlTable, found: FileProblems): OpsConf {
  const given = found.take(check(OPS_CONF, table));
  if (!given) return defaults();
  const settings = settingsOf(given);
  const rule = `must be less than certs_ttl (${settings.certsTtl}), or every build would renew every certificate`;
  if (settings.certsRenewalBuffer >= settings.certsTtl) found.error("certs_renewal_buffer", rule);
  return settings;
}

/** What ops.conf says, with the defaults in place. */
export type OpsConf = Readonly<ReturnType<typeof settingsOf>>;

function settingsOf(given: Infer<typeof OPS_CONF>) {
  return {
    sshUser: given.ssh_user,
    /** Name of the private key's file in `secrets/`. */
    sshKey: given.ssh_key,
    sshPort: given.ssh_port || 22,
    sshJump: given.ssh_jump,
    sshOptions: { ...given.ssh_options },
    /** How many ssh sessions are open at most at a time. */
    sshConcurrency: given.ssh_concurrency,
    /** For how long connections are kept after a run; 0 = they end with the run. */
    sshKeepSeconds: given.ssh_keep_seconds,
    /** For how long a command whose connection was lost is looked for; 0 for not at all. */
    sshReattachSeconds: given.ssh_reattach_seconds,
    useSudo: given.use_sudo,
    /** Where `<root>/<bucket_id>/` lives on workers that name no root of their own. */
    workerRoot: given.worker_root,
    /** How long certificates are valid, and how long before their end they are renewed, in days. */
    certsTtl: given.certs_ttl || 60,
    certsRenewalBuffer: given.certs_renewal_buffer,
    /** Which `bucket.jobs.<selector>.conf` is read; empty for `bucket.jobs.conf`. */
    jobConfigSelector: given.job_config_selector,
    logFormat: /^jsonl?$/i.test(given.log_format) ? ("json" as const) : ("kv" as const),
    /** How many runs are kept, and for how many days; 0 = unlimited. */
    logRunRetentionCount: given.log_run_retention_count,
    logRunRetentionDays: given.log_run_retention_days,
    /** How many bytes of each worker's output a run logs. */
    runOutputLimit: given.run_output_limit,
    /** How many snapshots are kept; 0 = all. */
    snapshotKeep: given.snapshot_keep,
    /** Whose public key seals the snapshots that ask for nothing else. */
    snapshotRecipient: given.snapshot_recipient,
  };
}

/** A file in `secrets/`, but none of the bucket's own: the ssh key can be replaced and deleted. */
function keyName(): Shape<string> {
  return refined(fileName, (name, path, report) => {
    if (OWN_SECRETS.test(name)) report(path, `must be another name: ${name} belongs to the bucket itself`);
    return name;
  });
}

function recipient(): Shape<string> {
  return refined(line(), (text, path, report) => {
    if (!isRecipient(text)) report(path, "expected a public key as `ops snapshot keygen` prints it");
    return text;
  });
}

/** A size such as `64MiB`, in bytes. */
function byteCount(): Shape<number> {
  return refined(line(), (text, path, report) => {
    const bytes = parseByteSize(text);
    if (bytes === undefined) report(path, "expected a whole number of KiB, MiB or GiB, such as 64MiB");
    return bytes ?? 0;
  });
}

/** The value of an ssh option: it becomes a line of ssh's configuration. */
function sshOption(): Shape<string> {
  return {
    schema: { type: ["string", "integer"] },
    check(value, path, report) {
      const text = typeof value === "number" ? String(value) : value;
      if (typeof text !== "string" || !/^[A-Za-z0-9@.,+:*^_-]{1,500}$/.test(text))
        report(path, "expected letters, digits and @ . , + : * ^ _ - only, at most 500");
      return String(text);
    },
  };
}

function defaults(): OpsConf {
  const checked = check(OPS_CONF, parseToml(DEFAULT_OPS_CONF));
  if (!checked.ok) throw new Error("the default ops.conf does not pass its own check");
  return settingsOf(checked.value);
}
