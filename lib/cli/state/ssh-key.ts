import { makeSshKey, type SshKeyInfo } from "../../bucket/workspace/ssh-key.ts";
import { Failure } from "../../core/errors.ts";
import { readBounded, realPlace } from "../../core/files.ts";
import { Launcher } from "../../core/spawn.ts";
import { secretTyped, stdinBytes } from "../base/ask.ts";
import { type Parsed, wantsJson } from "../base/flags.ts";
import { factLines, printAnswer, stopRequest, toStderr } from "../base/terminal.ts";
import type { BucketAccess } from "./access.ts";

const KEY_BYTES = 16 * 1024;

/** `ops ssh-key show`. Throws `not_found` where there is none. */
export async function showSshKey(bucket: BucketAccess, input: Parsed): Promise<number> {
  const key = await bucket.sshKey();
  if (!key.present && !wantsJson(input))
    throw new Failure("not_found", "the bucket has no ssh key for its workers; make one with `ops ssh-key create`");
  const facts = factLines([
    ["type", key.type ?? "none that ssh can use; replace it with `ops ssh-key set` or `ops ssh-key create --force`"],
    ["fingerprint", key.fingerprint],
    ["stored", key.updated_at],
    ["public key", key.public_key],
  ]);
  return printAnswer(input, key, facts);
}

/** `ops ssh-key set [file]`: stores the private key that the file or stdin holds. */
export async function setSshKey(bucket: BucketAccess, input: Parsed): Promise<number> {
  return stored(await bucket.storeSshKey(await givenKey(input.operands[0])), input);
}

async function givenKey(file: string | undefined): Promise<string> {
  const where = file ?? "stdin";
  const bytes = file === undefined ? await keyOnStdin() : await readBounded(realPlace(file), KEY_BYTES);
  if (!bytes) throw new Failure("usage", `there is no file ${where}`);
  if (bytes.length > KEY_BYTES) throw new Failure("usage", `${where} is no private key: it has more than 16 KiB`);
  if (bytes.length === 0) throw new Failure("usage", `${where} is empty: expected a private key`);
  return bytes.toString();
}

async function keyOnStdin(): Promise<Buffer> {
  if (!process.stdin.isTTY) return await stdinBytes(KEY_BYTES);
  return Buffer.from(await secretTyped("Paste the private key, then press Enter and Ctrl-D; it is not shown:\n"));
}

/** `ops ssh-key create`: makes a key pair, stores its private part, and prints the public one. */
export async function createSshKey(bucket: BucketAccess, input: Parsed): Promise<number> {
  if (!input.switches.has("force") && (await bucket.sshKey()).present)
    throw new Failure("usage", "the bucket has an ssh key already, which its workers may know: replace it with --force");
  using stop = stopRequest();
  const { PATH = "", HOME = "" } = process.env;
  return stored(await bucket.storeSshKey(await makeSshKey(new Launcher({ PATH, HOME, LC_ALL: "C" }), stop.signal)), input);
}

function stored(key: SshKeyInfo, input: Parsed): number {
  toStderr(`the key is stored: ${key.fingerprint}; each worker needs this line in ~/.ssh/authorized_keys of its ssh user:\n`);
  return printAnswer(input, key, `${key.public_key}\n`);
}

/** `ops ssh-key delete`. */
export async function deleteSshKey(bucket: BucketAccess, input: Parsed): Promise<number> {
  const { present } = await bucket.sshKey();
  await bucket.removeSshKey();
  return printAnswer(
    input,
    { deleted: present },
    present ? "the ssh key of the bucket is deleted\n" : "the bucket had no ssh key\n",
  );
}
