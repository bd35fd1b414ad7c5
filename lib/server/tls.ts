import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { TlsPair } from "../http/node-server.ts";
import { NOT_FOR_OTHERS, readNamedFile, refusal } from "./refusal.ts";

/** Where a certificate and its key are. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/**
 * A certificate and its key that belong together and can be served. Throws a refusal otherwise, also for a key that
 * others may read.
 */
export async function readTlsPair({ certFile, keyFile }: TlsFiles): Promise<TlsPair> {
  const cert = await readNamedFile("--tls-cert", certFile);
  const key = await readNamedFile("--tls-key", keyFile, NOT_FOR_OTHERS);
  const certificate = parsed(`--tls-cert ${certFile} is not a PEM certificate`, () => new X509Certificate(cert));
  const privateKey = parsed(`--tls-key ${keyFile} is not an unencrypted PEM key`, () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey))
    throw refusal(`--tls-key ${keyFile} does not belong to the certificate ${certFile}`);
  // The first certificate may be followed by others, which nothing has read until here.
  parsed(`--tls-cert ${certFile} cannot be served`, () => createSecureContext({ cert, key }));
  return { cert, key };
}

function parsed<T>(sentence: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw refusal(sentence, error);
  }
}
