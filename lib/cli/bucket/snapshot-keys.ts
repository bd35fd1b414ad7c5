import path from "node:path";
import { newIdentity, type Seal, sealKey } from "../../codec/crypto/seal-key.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { createExclusive, readGuarded, realPlace } from "../../core/files.ts";
import { askedOnTerminal, stdinBytes } from "../base/ask.ts";
import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, toStdout } from "../base/terminal.ts";

const PASSPHRASE_LENGTH = 12;
const PASSPHRASE_BYTES = 4096;
const NOT_ITS_OWNER = 0o077;

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
      : await readGuarded(file, NOT_ITS_OWNER).catch((error: unknown) => {
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
  const identity = await readGuarded(file, NOT_ITS_OWNER).catch((error: unknown) => {
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
  if (wantsJson(input)) printJson({ file, recipient });
  else toStdout(`${recipient}\n`);
  return EXIT.done;
}
