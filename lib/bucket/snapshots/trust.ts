import path from "node:path";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { makePrivateFolder } from "../../core/files.ts";
import { knownSigningKey, type SigningKey, serverKeyFile, serverSigningKey, signingKey } from "../../core/signing-key.ts";
import type { Layout } from "../base/layout.ts";

/** Whose snapshots are used. */
export interface Trust {
  /** Fingerprints of the keys that are believed. */
  signers: readonly string[];
  /** A snapshot without a signature is used, too. */
  unsigned: boolean;
}

/** What a person says about the signer of a snapshot. */
export interface AskedTrust {
  signer?: string | undefined;
  unsigned?: boolean | undefined;
}

/**
 * The key that signs the snapshots of a bucket, made where nothing was signed yet: below the root of a server that of the
 * server, else one of its own, which is in no snapshot. Throws `failed` where the key of the server is lost.
 */
export async function snapshotSigner(layout: Layout): Promise<SigningKey> {
  const root = serverRootOf(layout);
  if (root !== undefined) return await serverSigningKey(root);
  await makePrivateFolder(path.dirname(layout.signingKey));
  return await signingKey(layout.signingKey);
}

/** The trust in a place: in its own key, and in what was asked for. Makes nothing. */
export async function trustAt(layout: Layout, { signer, unsigned = false }: AskedTrust = {}): Promise<Trust> {
  const own = await ownSigner(layout);
  return { signers: [own, signer].filter((one) => one !== undefined), unsigned };
}

/** The fingerprint of the key that signs here; undefined where nothing was signed yet. */
export async function ownSigner(layout: Layout): Promise<string | undefined> {
  const root = serverRootOf(layout);
  return (await knownSigningKey(root === undefined ? layout.signingKey : serverKeyFile(root)))?.fingerprint;
}

/** The root of the server that a bucket belongs to: that of a folder which is named by a UUID. */
function serverRootOf({ root }: Layout): string | undefined {
  return isUuid(path.basename(root).toLowerCase()) ? path.dirname(root) : undefined;
}

/** Throws `failed`, with what to compare and to give, where the signer of a snapshot is not trusted. */
export function requireTrusted(signer: string | null, { signers, unsigned }: Trust): void {
  if (signer === null ? unsigned : signers.includes(signer)) return;
  if (signer === null)
    throw new Failure(
      "failed",
      "it is not signed: whoever can write files may have made it; if it is of an older ops, give --unsigned",
    );
  throw new Failure(
    "failed",
    `it is signed by ${signer}, not by the key of this place: compare with the server that made it, then give --signer ${signer}`,
  );
}
