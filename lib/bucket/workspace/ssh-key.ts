import { lstat, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fingerprintOf, KEY_TYPES, type PublicKey, parsePublicKey } from "../../codec/crypto/ssh-key.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import {
  createExclusive,
  flushFolder,
  makePrivateFolder,
  PRIVATE_FILE,
  readBounded,
  realPlace,
  remove,
  requireFolder,
  unlessMissing,
  writeAtomic,
} from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { list, string, valueIn } from "../../core/shape.ts";
import type { CommandOutcome, Launcher } from "../../core/spawn.ts";
import type { Layout } from "../base/layout.ts";
import type { OpsConf } from "./settings.ts";

/** What may be told about the key with which workers are reached. The private part is never told. */
export type SshKeyInfo = Awaited<ReturnType<typeof describeSshKey>>;

const CHECK_LIMIT_MS = 10_000;
const MAKE_LIMIT_MS = 30_000;

/** Where the private key for the workers is: `ssh_key` of ops.conf names its file in `secrets/`. */
export function sshKeyFile(layout: Layout, settings: OpsConf): string {
  return path.join(layout.secrets, settings.sshKey);
}

/** Describes the key in a file; a link or a folder of that name is no key. */
export async function describeSshKey(file: string, launcher: Launcher) {
  const found = await unlessMissing(lstat(file));
  const updated_at = found?.isFile() ? found.mtime.toISOString() : null;
  const key = updated_at === null ? undefined : publicKeyOf(await derivePublicKey(file, launcher));
  return {
    present: updated_at !== null,
    /** null where there is no key, or one that ssh cannot use. */
    type: (key?.type as string | undefined) ?? null,
    /** `SHA256:…`, as ssh-keygen shows it. */
    fingerprint: key ? fingerprintOf(key).fingerprint : null,
    /** One line for `authorized_keys` on the workers. */
    public_key: key ? `${key.type} ${key.base64}` : null,
    updated_at,
  };
}

/**
 * Puts a private key (OpenSSH or PEM, without a passphrase) in the place of the one before: written as 0600, checked
 * by ssh-keygen, then renamed, so that what was checked is what is stored. Throws `invalid_request` for a key that ssh
 * could not use, and then nothing has changed. A rotation whose key is not in use yet ends with that. Only for the holder of
 * the bucket's lock.
 */
export async function storeSshKey(file: string, privateKey: string, launcher: Launcher): Promise<void> {
  await makePrivateFolder(path.dirname(file));
  const candidate = candidateOf(file);
  await remove(candidate);
  try {
    // ssh wants lines that end with a newline, the last one too, which a copied key often lacks.
    await createExclusive(candidate, `${privateKey.replaceAll("\r\n", "\n").trim()}\n`);
    requireUsable(await derivePublicKey(candidate, launcher));
    await remove(nextKeyOf(file));
    await rename(candidate, file);
    await flushFolder(path.dirname(file));
  } finally {
    await remove(candidate);
  }
}

/** Removes the key; no error where there is none. Only for the holder of the bucket's lock. */
export async function removeSshKey(file: string): Promise<void> {
  await unlessMissing(requireFolder(path.dirname(file)));
  // Not recursive: whatever ops.conf names, only a file goes.
  await rm(file, { force: true });
  for (const other of [candidateOf(file), nextKeyOf(file), leftOf(file), oldKeyOf(file)]) await remove(other);
  await unlessMissing(flushFolder(path.dirname(file)));
}

/** A private key (ed25519), made in a folder of its own that is gone afterwards. Throws `failed`, `cancelled`. */
export async function makeSshKey(launcher: Launcher, signal: AbortSignal): Promise<string> {
  const folder = await mkdtemp(path.join(realPlace(tmpdir()), "ops-key-"));
  try {
    const file = path.join(folder, "key");
    const argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file] as const;
    const { exitCode, stderr } = await launcher.run(argv, { timeoutMs: MAKE_LIMIT_MS, signal });
    throwIfCancelled(signal);
    if (exitCode === 0) return await readFile(file, "utf8");
    throw new Failure("failed", `ssh-keygen could not make a key: ${stderr.trim() || `exit code ${exitCode}`}`);
  } finally {
    await remove(folder);
  }
}

/** The files of a change of the key: which key comes, and which goes. */
export interface SshKeyChange {
  /** The new key is not in use yet. */
  isNext: boolean;
  newFile: string;
  oldFile: string;
  /** Since when the change is as far as it is. */
  since: Date;
  /** The machines that may know only the key that goes, as the last run has told; empty where none has come so far. */
  left: readonly string[];
}

const MACHINES = list(string());
const LEFT_BYTES = 4 * 1024 * 1024;

/** How far a change of the key in `file` is; undefined where none was begun. */
export async function sshKeyChange(file: string): Promise<SshKeyChange | undefined> {
  const next = await unlessMissing(lstat(nextKeyOf(file)));
  if (next) return { isNext: true, newFile: nextKeyOf(file), oldFile: file, since: next.mtime, left: [] };
  const old = await unlessMissing(lstat(oldKeyOf(file)));
  if (!old) return undefined;
  const left = valueIn(MACHINES, (await readBounded(leftOf(file), LEFT_BYTES))?.toString() ?? "") ?? [];
  return { isNext: false, newFile: file, oldFile: oldKeyOf(file), since: old.mtime, left };
}

/** Begins a change: the next key is there, and not in use. */
export async function beginSshKeyChange(file: string, privateKey: string): Promise<SshKeyChange> {
  await createExclusive(nextKeyOf(file), privateKey);
  await flushFolder(path.dirname(file));
  faultPoint("ssh key: made");
  return { isNext: true, newFile: nextKeyOf(file), oldFile: file, since: new Date(), left: [] };
}

/** Puts the next key in use; the key before is kept beside it. A kill in between leaves the change as it was. */
export async function switchSshKey(file: string): Promise<void> {
  await createExclusive(oldKeyOf(file), await readFile(file));
  await flushFolder(path.dirname(file));
  faultPoint("ssh key: kept");
  await rename(nextKeyOf(file), file);
  await flushFolder(path.dirname(file));
  faultPoint("ssh key: switched");
}

/** Notes which machines may know only the key before, for whoever looks at the change. */
export async function noteLeft(file: string, machines: readonly string[]): Promise<void> {
  await writeAtomic(leftOf(file), JSON.stringify(machines), PRIVATE_FILE);
}

/** Ends a change: no worker needs the key before. */
export async function dropOldSshKey(file: string): Promise<void> {
  await remove(leftOf(file));
  await remove(oldKeyOf(file));
  await flushFolder(path.dirname(file));
}

/** While the key in `file` is changed, the next one, until it is in use. */
function nextKeyOf(file: string): string {
  return path.join(path.dirname(file), ".ssh_key.next");
}

/** While the key in `file` is changed, the one before, until no worker needs it. */
export function oldKeyOf(file: string): string {
  return path.join(path.dirname(file), ".ssh_key.old");
}

/** Beside {@link oldKeyOf}: which machines need it. */
function leftOf(file: string): string {
  return path.join(path.dirname(file), ".ssh_key.left");
}

/** One name for what is being checked: what a crash left there goes with the next change. */
function candidateOf(file: string): string {
  return path.join(path.dirname(file), ".ssh_key.candidate");
}

/** The empty passphrase makes ssh-keygen refuse a protected key instead of asking. */
function derivePublicKey(file: string, launcher: Launcher): Promise<CommandOutcome> {
  return launcher.run(["ssh-keygen", "-y", "-P", "", "-f", file], { timeoutMs: CHECK_LIMIT_MS });
}

function publicKeyOf({ exitCode, stdout }: CommandOutcome): PublicKey | undefined {
  const [type = "", base64 = ""] = exitCode === 0 ? stdout.trim().split(" ") : [];
  return parsePublicKey(type, base64);
}

function requireUsable(outcome: CommandOutcome): void {
  if (publicKeyOf(outcome)) return;
  const message = whyUnusable(outcome);
  throw new Failure("invalid_request", `private_key: ${message}`, { details: [{ path: "private_key", message }] });
}

function whyUnusable({ reason, exitCode, stderr }: CommandOutcome): string {
  if (reason === "timeout") return `ssh-keygen could not read it within ${CHECK_LIMIT_MS / 1000} s`;
  if (exitCode === 0) return `its type is none of ${KEY_TYPES.join(", ")}`;
  return /passphrase/.test(stderr)
    ? "it is protected by a passphrase, which nobody could enter in a run; give a key without one"
    : "it is not a private key in OpenSSH or PEM form";
}
