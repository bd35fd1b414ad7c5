import path from "node:path";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { type Opening, ofSnapshot, readFace, requireTrusted, trustAt } from "../../bucket/snapshots/envelope.ts";
import type { verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { findSnapshot, snapshotNames, withoutSuffix } from "../../bucket/snapshots/snapshots.ts";
import { newIdentity, type Seal, sealKey } from "../../codec/crypto/seal-key.ts";
import { idNamed } from "../../codec/uuid.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { createExclusive, exists, readGuarded, realPlace } from "../../core/files.ts";
import { byteSize, counted } from "../../core/plain-text.ts";
import { askedOnTerminal, stdinBytes } from "../base/ask.ts";
import { bucketDir, type Parsed } from "../base/flags.ts";
import { printAnswer, stopRequest } from "../base/terminal.ts";

/** `ops snapshot verify`. Takes no lock: the live bucket is not read. */
export async function verifySnapshotCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const file = await snapshotFile(bucketDir(input), input.operands[0] ?? "");
  const opening = await openingFor(bucketDir(input), file, input, stop.signal);
  const { verifySnapshot: verify } = await import("../../bucket/snapshots/restore.ts");
  return showVerdict(withoutSuffix(path.basename(file)), await verify(file, opening), input);
}

/** What the command line says about the signer of a snapshot. */
export function trustIn({ values, switches }: Parsed): { signer?: string; unsigned?: boolean } {
  const signer = values.get("signer");
  return { ...(signer !== undefined && { signer }), ...(switches.has("unsigned") && { unsigned: true }) };
}

/** The trust is that of the bucket's folder; the key comes from the flags, or is asked for. */
async function openingFor(dir: string, file: string, input: Parsed, signal: AbortSignal): Promise<Opening> {
  const { signer, seal } = await readFace(file);
  const trust = await trustAt(layoutOf(dir), trustIn(input));
  // Before anybody types a passphrase.
  await ofSnapshot(file, () => requireTrusted(signer, trust));
  return { trust, secret: await openingSecrets(input, seal), signal };
}

/** Shows what was found in a snapshot that can be restored. */
export function showVerdict(name: string, found: Pick<Verdict, "files" | "size_bytes" | "sealed_values">, input: Parsed): number {
  const { files, size_bytes: bytes, sealed_values: sealed } = found;
  const held = `${counted(files, "file")}, ${byteSize(bytes)}, ${counted(sealed, "sealed value")} opened`;
  return printAnswer(input, { name, ...found }, `the snapshot ${name} can be restored: ${held}\n`);
}

type Verdict = Awaited<ReturnType<typeof verifySnapshot>>;

/** `ops snapshot restore` into an empty folder: makes a whole bucket. */
export async function restoreCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const dir = bucketDir(input);
  const file = await snapshotFile(dir, input.operands[0] ?? "");
  const { restoreBucket } = await import("../../bucket/snapshots/restore.ts");
  const { bucket_id, created_at } = await restoreBucket(dir, file, await openingFor(dir, file, input, stop.signal));
  // A shell that stands in the folder is still in the one that was replaced.
  const hint = dir === realPlace(".") ? `; enter it again: cd ${dir}` : "";
  return printAnswer(
    input,
    { bucket_id, dir, created_at },
    `bucket ${bucket_id} is restored in ${dir} as it was at ${created_at}${hint}\n`,
  );
}

/** The name of the snapshot that a whole name, or its beginning or end, names, also with its suffix. */
export async function snapshotNamed(layout: Layout, given: string): Promise<string> {
  return idNamed(withoutSuffix(given), await snapshotNames(layout), "snapshot");
}

/** The file of a snapshot: text that names no snapshot of the bucket is the path of a file. */
export async function snapshotFile(dir: string, given: string): Promise<string> {
  try {
    return await findSnapshot(layoutOf(dir), await snapshotNamed(layoutOf(dir), given));
  } catch (error) {
    const file = realPlace(given);
    if (await exists(file)) return file;
    throw error;
  }
}

const PASSPHRASE_LENGTH = 12;
const PASSPHRASE_BYTES = 4096;

/**
 * The passphrase in the file that `--passphrase-file` names, which only its owner may read; `-` is stdin, where that holds
 * nothing else. Undefined without the flag. Throws `usage`.
 */
export async function passphraseOf({ values }: Parsed, isStdinFree: boolean): Promise<string | undefined> {
  const file = values.get("passphrase-file");
  if (file === undefined) return undefined;
  const wrong = (why: string) => new Failure("usage", `--passphrase-file: ${why}`);
  const text =
    file === "-" && isStdinFree
      ? (await stdinBytes(PASSPHRASE_BYTES)).toString()
      : await readGuarded(file).catch((error: unknown) => {
          throw wrong(messageOf(error));
        });
  const passphrase = text.replace(/\r?\n$/, "");
  if (passphrase.length >= PASSPHRASE_LENGTH) return passphrase;
  throw wrong(`the passphrase has fewer than ${PASSPHRASE_LENGTH} characters`);
}

/** What a new snapshot is sealed with besides its parameters: a passphrase from a file, or one that is typed twice. */
export async function sealingSecrets(input: Parsed): Promise<{ passphrase?: string }> {
  const isTyped = input.switches.has("passphrase");
  const given = await passphraseOf(input, true);
  if (given !== undefined && isTyped) throw new Failure("usage", "give --passphrase or --passphrase-file, not both");
  if (input.values.has("recipient") && (isTyped || given !== undefined))
    throw new Failure("usage", "give --recipient or a passphrase, not both");
  const passphrase = isTyped ? await typedTwice() : given;
  return passphrase === undefined ? {} : { passphrase };
}

async function typedTwice(): Promise<string> {
  const first = await askedOnTerminal("Passphrase: ", { secret: true });
  if (first === undefined) throw new Failure("usage", "--passphrase needs a terminal: elsewhere give --passphrase-file");
  if (first.length < PASSPHRASE_LENGTH)
    throw new Failure("usage", `the passphrase has fewer than ${PASSPHRASE_LENGTH} characters`);
  if ((await askedOnTerminal("The same again: ", { secret: true })) === first) return first;
  throw new Failure("usage", "the two passphrases differ");
}

/**
 * The key of a sealed snapshot, for this snapshot alone: passphrase and private key stay here, and a server gets no more
 * than it needs. Without a flag the passphrase is asked for on the terminal. Throws `usage` where what is needed is not
 * given, `failed` where it does not open the snapshot.
 */
export async function openingSecrets(input: Parsed, seal: Seal | null): Promise<{ key?: string }> {
  if (seal === null) return {};
  const given = seal.for === "passphrase" ? await givenPassphrase(input) : await givenIdentity(input, seal);
  const key = await sealKey(seal, given).catch((error: unknown) => {
    throw new Failure("failed", `Cannot open the snapshot: ${messageOf(error)}`, { cause: error });
  });
  return { key: key.toString("base64") };
}

async function givenPassphrase(input: Parsed): Promise<{ passphrase: string }> {
  const passphrase =
    (await passphraseOf(input, true)) ?? (await askedOnTerminal("Passphrase of the snapshot: ", { secret: true }));
  if (passphrase !== undefined) return { passphrase };
  throw new Failure("usage", "the snapshot is sealed for a passphrase: give --passphrase-file (- is stdin)");
}

async function givenIdentity({ values }: Parsed, { recipient }: Seal): Promise<{ identity: string }> {
  const file = values.get("identity-file");
  if (file === undefined)
    throw new Failure("usage", `the snapshot is sealed for ${recipient}: give its private key with --identity-file`);
  const identity = await readGuarded(file).catch((error: unknown) => {
    throw new Failure("usage", `--identity-file: ${messageOf(error)}`);
  });
  return { identity };
}

/** `ops snapshot keygen <file>`: writes a private key (0600) and prints the public one, for which snapshots can be sealed. */
export async function keygenCommand(input: Parsed): Promise<number> {
  const file = realPlace(path.resolve(input.operands[0] ?? ""));
  const { identity, recipient } = newIdentity();
  if (!(await createExclusive(file, identity)))
    throw new Failure("usage", `${file} exists: it is not replaced, because snapshots may be sealed for the key in it`);
  return printAnswer(input, { file, recipient }, `${recipient}\n`);
}
