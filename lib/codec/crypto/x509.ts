import { createHash, type KeyObject, randomBytes, sign, type X509Certificate } from "node:crypto";
import { isIP, isIPv4 } from "node:net";
import { promisify } from "node:util";
import * as der from "./der.ts";

/** From when to when a certificate is valid, in whole seconds. */
interface Validity {
  notBefore: Date;
  notAfter: Date;
}

/** Who signs certificates: the subject of its own certificate (DER), the id of its key, and the private key. */
export interface Issuer {
  name: Buffer;
  keyId: Buffer;
  key: KeyObject;
}

/** What a certificate for a service says. */
export interface LeafRequest {
  /** At most 64 characters. */
  commonName: string;
  /** IP addresses and DNS names. */
  altNames: readonly string[];
  publicKey: KeyObject;
  validity: Validity;
}

/** Object identifiers; those below 2.5.29 are extensions. */
const OIDS = {
  commonName: "2.5.4.3",
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
  clientAuth: "1.3.6.1.5.5.7.3.2",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  ecdsaWithSha384: "1.2.840.10045.4.3.3",
  sha256WithRsa: "1.2.840.113549.1.1.11",
} as const;

const SIGNS_CERTIFICATES_AND_CRLS = der.bitString(Buffer.from([0x06]), 1);
const SIGNS = der.bitString(Buffer.from([0x80]), 7);
const SIGNS_AND_DECRYPTS = der.bitString(Buffer.from([0xa0]), 5);

const SERIAL_BYTES = 16;
/** As RFC 7093, method 1, has it: the first 160 bits of SHA-256. */
const KEY_ID_BYTES = 20;

/** A certificate, in PEM, with which `key` issues others but no further authority (RFC 5280). */
export async function selfSigned(
  commonName: string,
  keys: { publicKey: KeyObject; privateKey: KeyObject },
  validity: Validity,
): Promise<string> {
  const { publicKey, privateKey } = keys;
  const subject = commonNameOf(commonName);
  const keyId = keyIdOf(publicKey);
  const extensions = [
    certificateExtension("basicConstraints", der.sequence(der.yes(), der.integer(Buffer.from([0]))), "critical"),
    certificateExtension("keyUsage", SIGNS_CERTIFICATES_AND_CRLS, "critical"),
    certificateExtension("subjectKeyIdentifier", der.octetString(keyId)),
  ];
  const issuer = { name: subject, keyId, key: privateKey };
  return await signedCertificate({ subject, publicKey, validity, extensions }, issuer);
}

/** A certificate, in PEM, for a service that is server and client; it cannot issue others. */
export async function leaf(request: LeafRequest, issuer: Issuer): Promise<string> {
  const { commonName, altNames, publicKey, validity } = request;
  const usage = publicKey.asymmetricKeyType === "rsa" ? SIGNS_AND_DECRYPTS : SIGNS;
  const purposes = der.sequence(der.oid(OIDS.serverAuth), der.oid(OIDS.clientAuth));
  const extensions = [
    certificateExtension("basicConstraints", der.sequence(), "critical"),
    certificateExtension("keyUsage", usage, "critical"),
    certificateExtension("extendedKeyUsage", purposes),
    certificateExtension("subjectAltName", der.sequence(...altNames.map(generalName))),
    certificateExtension("subjectKeyIdentifier", der.octetString(keyIdOf(publicKey))),
    certificateExtension("authorityKeyIdentifier", der.sequence(der.element(0x80, issuer.keyId))),
  ];
  return await signedCertificate({ subject: commonNameOf(commonName), publicKey, validity, extensions }, issuer);
}

/** Makes an issuer of a certificate and its key. Throws `RangeError` for a key that this program cannot sign with. */
export function issuerOf(certificate: X509Certificate, key: KeyObject): Issuer {
  algorithmOf(key);
  const fields = der.elements(der.elements(der.elements(certificate.raw)[0]?.content ?? NO_BYTES)[0]?.content ?? NO_BYTES);
  // Version, serial, algorithm, issuer, validity, subject, key; the extensions are the field with the tag 3.
  const name = fields[5]?.whole ?? NO_BYTES;
  const list = der.elements(fields.find((field) => field.tag === 0xa3)?.content ?? NO_BYTES)[0]?.content ?? NO_BYTES;
  const wanted = der.oid(OIDS.subjectKeyIdentifier);
  const id = der
    .elements(list)
    .map((one) => der.elements(one.content))
    .find(([type]) => type?.whole.equals(wanted))
    ?.at(-1);
  return { name, keyId: id ? (der.elements(id.content)[0]?.content ?? NO_BYTES) : keyIdOf(certificate.publicKey), key };
}

const NO_BYTES = Buffer.alloc(0);
const signed = promisify(sign);

interface Certificate {
  subject: Buffer;
  publicKey: KeyObject;
  validity: Validity;
  extensions: Buffer[];
}

async function signedCertificate(certificate: Certificate, issuer: Issuer): Promise<string> {
  const { subject, publicKey, validity, extensions } = certificate;
  const { hash, algorithm } = algorithmOf(issuer.key);
  const content = der.sequence(
    der.element(0xa0, der.integer(Buffer.from([2]))),
    der.integer(serial()),
    algorithm,
    issuer.name,
    der.sequence(der.time(validity.notBefore), der.time(validity.notAfter)),
    subject,
    spkiOf(publicKey),
    der.element(0xa3, der.sequence(...extensions)),
  );
  // With a callback the signing is done off the main thread.
  const signature = await signed(hash, content, issuer.key);
  return pem(der.sequence(content, algorithm, der.bitString(signature)));
}

/** A random number of 128 bits that is positive and has no leading zeros. */
function serial(): Buffer {
  const bytes = randomBytes(SERIAL_BYTES);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes;
}

function algorithmOf(key: KeyObject): { hash: string; algorithm: Buffer } {
  const kind = key.asymmetricKeyDetails?.namedCurve ?? key.asymmetricKeyType;
  if (kind === "prime256v1") return { hash: "sha256", algorithm: der.sequence(der.oid(OIDS.ecdsaWithSha256)) };
  if (kind === "secp384r1") return { hash: "sha384", algorithm: der.sequence(der.oid(OIDS.ecdsaWithSha384)) };
  if (kind === "rsa") return { hash: "sha256", algorithm: der.sequence(der.oid(OIDS.sha256WithRsa), der.nothing()) };
  throw new RangeError(`its key is ${kind}; it must be EC (P-256 or P-384) or RSA`);
}

function commonNameOf(commonName: string): Buffer {
  return der.sequence(der.set(der.sequence(der.oid(OIDS.commonName), der.utf8(commonName))));
}

function spkiOf(key: KeyObject): Buffer {
  return key.export({ type: "spki", format: "der" });
}

function keyIdOf(key: KeyObject): Buffer {
  const bits = der.elements(der.elements(spkiOf(key))[0]?.content ?? NO_BYTES)[1]?.content ?? NO_BYTES;
  return createHash("sha256").update(bits.subarray(1)).digest().subarray(0, KEY_ID_BYTES);
}

function certificateExtension(name: keyof typeof OIDS, value: Buffer, critical?: "critical"): Buffer {
  return der.sequence(der.oid(OIDS[name]), ...(critical ? [der.yes()] : []), der.octetString(value));
}

function generalName(name: string): Buffer {
  return isIP(name) === 0 ? der.element(0x82, Buffer.from(name, "latin1")) : der.element(0x87, addressBytes(name));
}

/** The 4 or 16 bytes of an IP address. */
function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  // A URL shows the address in its one canonical form, without dotted parts.
  const [head = "", tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const groups = (part: string) => (part === "" ? [] : part.split(":"));
  const [first, last] = [groups(head), groups(tail ?? "")];
  const zeros = Array.from({ length: 8 - first.length - last.length }, () => "0");
  return Buffer.from([...first, ...zeros, ...last].map((group) => group.padStart(4, "0")).join(""), "hex");
}

function pem(der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}
