import { X509Certificate } from "node:crypto";
import { Failure } from "../../core/errors.ts";
import { flushFolder, PRIVATE_FILE, readBounded, remove, writeAtomic } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import {
  AUTHORITY_BYTES,
  type AuthorityFiles,
  CERTIFICATE_MODE,
  digestOfCertificate,
  loadAuthority,
  readPair,
} from "./certificates.ts";
import type { Layout } from "./layout.ts";

/**
 * How far a rotation of the authority is. `trust`: the present one signs, and the next one is trusted beside it. `issue`:
 * the next one signs, and the one before is trusted beside it.
 */
export interface Rotation {
  phase: "trust" | "issue";
  /** RFC 3339. */
  since: string;
  /** In `trust` the pair that signs next. */
  next?: AuthorityFiles;
  /** In `issue` the fingerprint of the certificate that goes at the end. */
  old?: string;
}

/** `secrets/ca.change`: what ca.crt and ca.key become, where they are not that yet, and the rotation, where one is begun. */
interface AuthorityChange {
  files?: AuthorityFiles;
  rotation?: Rotation;
}

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\r?\n?/g;

/** The rotation that is begun, if any. */
export async function readRotation(layout: Layout): Promise<Rotation | undefined> {
  return (await readChange(layout))?.rotation;
}

/** True where a change of the authority was cut off, or is at work. */
export async function isAuthorityCut(layout: Layout): Promise<boolean> {
  return (await readChange(layout))?.files !== undefined;
}

/**
 * Finishes a change of the authority that was cut off: a kill between the two files leaves none of them lost. To be
 * called under the bucket's lock, before anything else is done in the bucket.
 */
export async function settleAuthority(layout: Layout): Promise<void> {
  const change = await readChange(layout);
  if (!change?.files) return;
  const { files, rotation } = change;
  await writeAtomic(layout.caKey, files.key, PRIVATE_FILE);
  faultPoint("ca: key written");
  await writeAtomic(layout.caCertificate, files.certificate, CERTIFICATE_MODE);
  faultPoint("ca: certificate written");
  if (rotation) return await writeChange(layout, { rotation });
  await remove(layout.caChange);
  await flushFolder(layout.secrets);
}

/** Puts another pair in the place of the authority's, and ends a rotation. Under the bucket's lock. */
export async function replaceAuthority(layout: Layout, files: AuthorityFiles): Promise<void> {
  await makeSo(layout, { files });
}

/** Begins a rotation: the certificate of the pair that signs next is trusted beside the present one. */
export async function beginRotation(layout: Layout, next: AuthorityFiles): Promise<Rotation> {
  const present = await presentFiles(layout);
  const certificate = bundleOf([...certificatesIn(present.certificate), ...certificatesIn(next.certificate)]);
  return await makeSo(layout, {
    files: { certificate, key: present.key },
    rotation: { phase: "trust", since: new Date().toISOString(), next },
  });
}

/** Lets the next authority sign, with the one before trusted beside it. */
export async function issueFromNext(layout: Layout, { next }: Rotation): Promise<Rotation> {
  if (!next) throw new Failure("internal", "the rotation of the CA has no next pair");
  const { fingerprint: old, pem } = await loadAuthority(layout);
  const certificate = bundleOf([...certificatesIn(next.certificate), ...certificatesIn(pem)]);
  return await makeSo(layout, {
    files: { certificate, key: next.key },
    rotation: { phase: "issue", since: new Date().toISOString(), old },
  });
}

/** Ends a rotation: the authority before is trusted no more. */
export async function dropOldAuthority(layout: Layout, { old }: Rotation): Promise<void> {
  const present = await presentFiles(layout);
  const left = certificatesIn(present.certificate).filter((one) => digestOfCertificate(new X509Certificate(one)) !== old);
  await makeSo(layout, { files: { certificate: bundleOf(left), key: present.key } });
}

/** The certificates of a text in PEM; the text itself where it is of another form. */
export function certificatesIn(text: string): string[] {
  return (text.match(PEM) ?? [text]).map((one) => `${one.trim()}\n`);
}

function bundleOf(certificates: readonly string[]): string {
  return [...new Set(certificates)].join("");
}

async function presentFiles(layout: Layout): Promise<AuthorityFiles> {
  await loadAuthority(layout);
  return (await readPair(layout)) as AuthorityFiles;
}

/** Notes what is to be, which decides, and then makes it so. */
async function makeSo<C extends AuthorityChange>(layout: Layout, wanted: C): Promise<C["rotation"]> {
  await writeChange(layout, wanted);
  faultPoint("ca: noted");
  await settleAuthority(layout);
  return wanted.rotation;
}

async function writeChange(layout: Layout, wanted: AuthorityChange): Promise<void> {
  await writeAtomic(layout.caChange, JSON.stringify(wanted), PRIVATE_FILE);
}

async function readChange(layout: Layout): Promise<AuthorityChange | undefined> {
  const found = await readBounded(layout.caChange, 8 * AUTHORITY_BYTES);
  if (!found) return undefined;
  try {
    return JSON.parse(found.toString()) as AuthorityChange;
  } catch (cause) {
    throw new Failure("failed", `Cannot read ${layout.caChange}: no ops wrote it; bring it back from a snapshot`, { cause });
  }
}
