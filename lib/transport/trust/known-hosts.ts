import { isIPv6, SocketAddress } from "node:net";
import { KEY_TYPES, type PublicKey, parsePublicKey } from "../../codec/crypto/ssh-key.ts";
import { Failure } from "../../core/errors.ts";
import { readBounded, writeAtomic } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";

const LIMIT_BYTES = 4 * 1024 * 1024;
const SSH_PORT = 22;

/**
 * The name under which ssh looks for a host's key: `[host]:port`, or the host alone on port 22; in small letters, an
 * address in the form the system writes it.
 */
export function knownHostName(host: string, port: number): string {
  const address = isIPv6(host) ? new SocketAddress({ address: host, family: "ipv6" }).address : host;
  const name = address.toLowerCase();
  return port === SSH_PORT ? name : `[${name}]:${port}`;
}

/**
 * Reads lines of `<name> <key type> <key>`; blank lines and comments are passed over. Anything else (several names,
 * hashed ones, markers) throws `failed` with the line: a rule that is not understood must not be lost.
 */
export function parseKnownHosts(text: string, file: string): Map<string, PublicKey[]> {
  const known = new Map<string, PublicKey[]>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [given = "", type = "", base64 = "", ...rest] = line.trim().split(/[ \t]+/);
    const name = given.toLowerCase();
    const key = rest.length === 0 ? parsePublicKey(type, base64) : undefined;
    if (!key || !/^[^@|!*?,]+$/.test(name))
      throw new Failure(
        "failed",
        `Cannot read ${file}, line ${index + 1}: expected a host, a key type and a key, found ${quote(line)}; remove the line`,
      );
    const keys = known.get(name) ?? [];
    if (!keys.some((one) => isSameKey(one, key))) known.set(name, [...keys, key]);
  }
  return known;
}

/** True when both are the same key. */
export function isSameKey(a: PublicKey, b: PublicKey): boolean {
  return a.type === b.type && a.base64 === b.base64;
}

/** The keys in the order of preference. */
export function sortKeys(keys: readonly PublicKey[]): PublicKey[] {
  return [...keys].sort((a, b) => KEY_TYPES.indexOf(a.type) - KEY_TYPES.indexOf(b.type));
}

/** The host keys that a bucket trusts: `.ssh/known_hosts`. Only for the holder of the bucket's lock. */
export class KnownHosts {
  readonly #file: string;
  readonly #keys: Map<string, PublicKey[]>;
  #saved: Promise<void> = Promise.resolve();

  private constructor(file: string, keys: Map<string, PublicKey[]>) {
    this.#file = file;
    this.#keys = keys;
  }

  /** Reads the file; where there is none, no host is known. Throws `failed` for a file that no ops wrote. */
  static async open(file: string): Promise<KnownHosts> {
    const bytes = await readBounded(file, LIMIT_BYTES);
    return new KnownHosts(file, parseKnownHosts(bytes?.toString() ?? "", file));
  }

  /** The keys of a host, the preferred first; none for one that is not known. */
  keysOf(name: string): PublicKey[] {
    return sortKeys(this.#keys.get(name) ?? []);
  }

  /** From now on these are the keys of the host; resolves once the file (0600) says so. */
  record(name: string, keys: readonly PublicKey[]): Promise<void> {
    this.#keys.set(name, [...keys]);
    const lines = [...this.#keys.keys()].sort().flatMap((one) => knownHostLines(one, this.keysOf(one)));
    // One after the other, so that the newest content is the last.
    this.#saved = this.#saved.then(() => writeAtomic(this.#file, lines.join("")));
    return this.#saved;
  }
}

/** The lines of known_hosts for the keys of a host. */
export function knownHostLines(name: string, keys: readonly PublicKey[]): string[] {
  return keys.map(({ type, base64 }) => `${name} ${type} ${base64}\n`);
}
