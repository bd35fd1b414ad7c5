import {
  createHash,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
  randomBytes,
  scrypt,
  timingSafeEqual,
} from "node:crypto";
import { promisify } from "node:util";
import { Failure } from "../../core/errors.ts";
import {
  type Infer,
  integer,
  list,
  object,
  oneOf,
  optional,
  refined,
  type Shape,
  string,
  withExample,
} from "../../core/shape.ts";

/** The cost of a passphrase: 64 MiB and about a fifth of a second for each guess. */
const PASSPHRASE_COST = { n: 2 ** 16, r: 8, p: 1 };
/** A foreign file may not ask for more. */
const MOST_COST_BYTES = 256 * 1024 * 1024;
const SALT_BYTES = 16;
const SEAL_KEY_BYTES = 32;
const CHECK_BYTES = 16;
/** What comes before the 32 bytes of an X25519 public key in its DER form (RFC 8410). */
const X25519_PREFIX = Buffer.from("302a300506032b656e032100", "hex");
const POINT_BYTES = 32;
const SUM_BYTES = 4;
const RECIPIENT_PREFIX = "x25519:";
/** How many files can be opened like one another in a row. */
const MOST_STEPS = 100;

const BYTES = withExample(
  string({ pattern: /^[A-Za-z0-9+/]{22,44}={0,2}$/, means: "bytes in base64" }),
  "47DEQpj8HBSa+/TImW+5JA==",
);

const SEAL_FIELDS = object({
  for: oneOf("passphrase", "recipient"),
  salt: BYTES,
  /** Of scrypt, for a passphrase. */
  n: optional(integer({ min: 2, max: 2 ** 20 })),
  r: optional(integer({ min: 1, max: 64 })),
  p: optional(integer({ min: 1, max: 16 })),
  /** Whose private key opens the file, and the public key that was made for this file alone. */
  recipient: optional(string({ max: 100 })),
  ephemeral: optional(BYTES),
  /** Of a file that is opened like another one: how its key comes from that one's, a step for each such file before it. */
  derived: optional(list(BYTES, { max: MOST_STEPS })),
  /** Tells the right key from a wrong one; of no use to find it. */
  check: BYTES,
});

/** How a sealed file is opened: what its header says, and nobody need hide. */
export type Seal = Partial<Infer<typeof SEAL_FIELDS>> & Pick<Infer<typeof SEAL_FIELDS>, "for" | "salt" | "check">;

/** The shape of a {@link Seal}. */
export const SEAL: Shape<Seal> = refined(SEAL_FIELDS, (seal, path, report) => {
  const { n, r, p } = seal;
  const isCosted = n !== undefined && r !== undefined && p !== undefined;
  if (seal.for === "passphrase" && !isCosted) report(path, "the cost of the passphrase is missing");
  if (isCosted && (128 * n * r * p > MOST_COST_BYTES || (n & (n - 1)) !== 0))
    report(path, "the cost of its passphrase is too high");
  if (seal.for === "recipient" && (seal.recipient === undefined || seal.ephemeral === undefined))
    report(path, "the recipient is missing");
  return seal;
});

/** A seal with its key. */
export interface OpenedSeal {
  seal: Seal;
  key: Buffer;
}

/** Who can open a sealed file: who knows a passphrase, the owner of a private key, or whoever can open another file. */
export type SealTarget = { passphrase: string } | { recipient: string } | OpenedSeal;

/** A new key that the target can find again with the seal. Throws `failed` for a recipient that is none. */
export async function newSeal(target: SealTarget): Promise<OpenedSeal> {
  if ("key" in target) return sealLike(target);
  const salt = randomBytes(SALT_BYTES).toString("base64");
  if ("passphrase" in target) {
    const seal = { for: "passphrase", salt, ...PASSPHRASE_COST } as const;
    return checked(seal, await passphraseKey(target.passphrase, Buffer.from(salt, "base64"), PASSPHRASE_COST));
  }
  const { recipient } = target;
  const { publicKey, privateKey } = generateKeyPairSync("x25519");
  const ephemeral = pointOf(publicKey).toString("base64");
  return checked({ for: "recipient", salt, recipient, ephemeral }, sharedSecret(privateKey, recipientPoint(recipient)));
}

function checked(seal: Omit<Seal, "check">, secret: Buffer): OpenedSeal {
  return withCheck(seal, fileKey(seal, secret));
}

function withCheck(seal: Omit<Seal, "check">, key: Buffer): OpenedSeal {
  return { seal: { ...seal, check: checkOf(key).toString("base64") }, key };
}

/** A key of its own, since no key seals two files; the same passphrase or private key finds it. */
function sealLike({ seal, key }: OpenedSeal): OpenedSeal {
  const { derived = [] } = seal;
  const step = randomBytes(SALT_BYTES).toString("base64");
  if (derived.length < MOST_STEPS) return withCheck({ ...seal, derived: [...derived, step] }, nextKey(key, step));
  throw new Failure("failed", `${MOST_STEPS} files were sealed like one another in a row: seal one anew`);
}

/**
 * The key of a sealed file, by its passphrase, by the private key of its recipient (PEM), or as it is (base64). Throws
 * `failed`, with what is needed, where it is none of these.
 */
export async function sealKey(seal: Seal, given: { passphrase?: string; identity?: string; key?: string }): Promise<Buffer> {
  const { passphrase, identity, key: known } = given;
  const key = known === undefined ? await foundKey(seal, passphrase, identity) : Buffer.from(known, "base64");
  const wrong = known !== undefined ? "key" : seal.for === "passphrase" ? "passphrase" : "private key";
  if (key.length === SEAL_KEY_BYTES && timingSafeEqual(checkOf(key), paddedCheck(seal.check))) return key;
  throw new Failure("failed", `the ${wrong} does not open it`);
}

async function foundKey(seal: Seal, passphrase?: string, identity?: string): Promise<Buffer> {
  const { salt, n = 0, r = 0, p = 0, recipient = "", ephemeral = "" } = seal;
  if (seal.for === "passphrase") {
    if (passphrase === undefined) throw new Failure("failed", "it is sealed for a passphrase, which was not given");
    return fileKey(seal, await passphraseKey(passphrase, Buffer.from(salt, "base64"), { n, r, p }));
  }
  if (identity === undefined) throw new Failure("failed", `it is sealed for ${recipient}, whose private key was not given`);
  const own = recipientOf(identity);
  if (own !== recipient) throw new Failure("failed", `it is sealed for ${recipient}, the private key is that of ${own}`);
  return fileKey(seal, sharedSecret(createPrivateKey(identity), Buffer.from(ephemeral, "base64")));
}

/** HKDF over what both sides know; the public keys are bound into it. */
function fileKey({ salt, recipient = "", ephemeral = "", derived = [] }: Omit<Seal, "check">, secret: Buffer): Buffer {
  const purpose = `ops sealed file\0${recipient}\0${ephemeral}`;
  const first = Buffer.from(hkdfSync("sha256", secret, Buffer.from(salt, "base64"), purpose, SEAL_KEY_BYTES));
  return derived.reduce(nextKey, first);
}

function nextKey(key: Buffer, step: string): Buffer {
  return Buffer.from(hkdfSync("sha256", key, Buffer.from(step, "base64"), "ops sealed file step", SEAL_KEY_BYTES));
}

function checkOf(key: Buffer): Buffer {
  return Buffer.from(hkdfSync("sha256", key, "", "ops sealed file check", CHECK_BYTES));
}

function paddedCheck(text: string): Buffer {
  return Buffer.concat([Buffer.from(text, "base64"), Buffer.alloc(CHECK_BYTES)]).subarray(0, CHECK_BYTES);
}

/** 32 bytes that scrypt makes of a passphrase. */
export async function passphraseKey(passphrase: string, salt: string | Buffer, { n, r, p } = PASSPHRASE_COST): Promise<Buffer> {
  const cost = { N: n, r, p, maxmem: 2 * MOST_COST_BYTES };
  const derive = promisify(scrypt) as (secret: string, salt: string | Buffer, length: number, cost: object) => Promise<Buffer>;
  return await derive(passphrase, salt, SEAL_KEY_BYTES, cost);
}

function sharedSecret(privateKey: KeyObject, point: Buffer): Buffer {
  try {
    const publicKey = createPublicKey({ key: Buffer.concat([X25519_PREFIX, point]), type: "spki", format: "der" });
    return diffieHellman({ privateKey, publicKey });
  } catch (cause) {
    // A point of low order, for example: every private key would give the same secret.
    throw new Failure("failed", "its public key cannot be used", { cause });
  }
}

/** A key pair of a recipient: the private key in PEM, and the public one as {@link isRecipient} knows it. */
export function newIdentity(): { identity: string; recipient: string } {
  const identity = generateKeyPairSync("x25519").privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  return { identity, recipient: recipientOf(identity) };
}

/** The public key to a private one in PEM. Throws `failed` for any other text. */
export function recipientOf(identity: string): string {
  try {
    const key = createPrivateKey(identity);
    if (key.asymmetricKeyType !== "x25519") throw new Error("it is a key of another type");
    const point = pointOf(createPublicKey(key));
    return RECIPIENT_PREFIX + Buffer.concat([point, pointSum(point)]).toString("base64url");
  } catch (cause) {
    throw new Failure("failed", "the private key is no X25519 key in PEM", { cause });
  }
}

/** True for a recipient's public key; one with a slip in it is none, because its last bytes are a sum. */
export function isRecipient(text: string): boolean {
  const bytes = Buffer.from(text.slice(RECIPIENT_PREFIX.length), "base64url");
  const isWhole = bytes.length === POINT_BYTES + SUM_BYTES && text === RECIPIENT_PREFIX + bytes.toString("base64url");
  return isWhole && pointSum(bytes.subarray(0, POINT_BYTES)).equals(bytes.subarray(POINT_BYTES));
}

function recipientPoint(recipient: string): Buffer {
  if (!isRecipient(recipient)) throw new Failure("failed", "the recipient is no public key as `ops snapshot keygen` prints it");
  return Buffer.from(recipient.slice(RECIPIENT_PREFIX.length), "base64url").subarray(0, POINT_BYTES);
}

function pointOf(publicKey: KeyObject): Buffer {
  return publicKey.export({ type: "spki", format: "der" }).subarray(-POINT_BYTES);
}

function pointSum(point: Buffer): Buffer {
  return createHash("sha256").update(RECIPIENT_PREFIX).update(point).digest().subarray(0, SUM_BYTES);
}
