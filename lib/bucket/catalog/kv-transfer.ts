import { randomBytes, scrypt } from "node:crypto";
import { promisify } from "node:util";
import { seal } from "../../codec/crypto/seal.ts";
import { Failure } from "../../core/errors.ts";
import { check, integer, isObject, object, optional, parsedJson, quote, type Shape, string } from "../../core/shape.ts";
import type { Database } from "../base/database.ts";
import { unknownName } from "../base/problems.ts";
import type { KvStore } from "../kv/kv.ts";
import { isSecretNamespace, tryUnseal } from "../kv/kv-access.ts";
import { SECRET_KEY } from "./job-secret.ts";

/** A key of a job that no build writes: a value of `vars/job/<job>` or `secrets/job/<job>`, in clear. */
export interface LiveEntry {
  namespace: string;
  key: string;
  value: string;
  /** Seconds that are left. */
  ttl?: number | undefined;
}

const VALUE_BYTES = 1024 * 1024;
const SALT_BYTES = 16;
const KEY_BYTES = 32;
/** 64 MiB and about a fifth of a second for each guess of a passphrase. */
const COST = { N: 2 ** 16, r: 8, p: 1, maxmem: 128 * 1024 * 1024 };

const HEAD = object({ ops_kv: integer({ min: 1, max: 1 }), entries: integer({ min: 0 }), salt: optional(string({ max: 100 })) });
const LINE = object(
  {
    namespace: string({ pattern: /^(vars|secrets)\/job\/[a-z][a-z0-9_-]{0,99}$/, means: "vars/job/<job> or secrets/job/<job>" }),
    key: string({ pattern: SECRET_KEY, means: "one line of text" }),
    value: optional(string({ min: 1, max: VALUE_BYTES })),
    sealed: optional(string({ min: 1, max: 2 * VALUE_BYTES })),
    ttl: optional(integer({ min: 1 })),
  },
  { exclusive: [["value", "sealed"]] },
);

/** All keys of jobs that no build writes, or those of some jobs. */
export function liveEntries(kv: KvStore, jobs: readonly string[] | undefined, nowMs: number): LiveEntry[] {
  const namespaces = kv.namespaces().filter((name) => {
    const [, job] = /^(?:vars|secrets)\/job\/(.+)$/.exec(name) ?? [];
    return job !== undefined && (jobs?.includes(job) ?? true);
  });
  return namespaces.flatMap((namespace) =>
    [...kv.entries(namespace)].map(([key, value]) => {
      const { ttl = 0, createdMs = 0 } = kv.entry(namespace, key) ?? {};
      return { namespace, key, value, ...(ttl > 0 && { ttl: Math.max(1, Math.ceil(ttl - (nowMs - createdMs) / 1000)) }) };
    }),
  );
}

/** The entries as JSON lines, below a line that says how many. Secrets are sealed with the passphrase, if there is one. */
export async function linesOfEntries(entries: readonly LiveEntry[], passphrase: string | undefined): Promise<string> {
  const salt = randomBytes(SALT_BYTES).toString("base64");
  const sealKey = passphrase === undefined ? undefined : await sealKeyOf(passphrase, salt);
  const lines = entries.map(({ namespace, key, value, ...rest }) => {
    const isSealed = sealKey !== undefined && isSecretNamespace(namespace);
    return { namespace, key, ...(isSealed ? { sealed: seal(sealKey, namespace, key, value) } : { value }), ...rest };
  });
  const head = { ops_kv: 1, entries: entries.length, ...(sealKey && { salt }) };
  return [head, ...lines].map((line) => `${JSON.stringify(line)}\n`).join("");
}

/**
 * The entries of JSON lines, as {@link linesOfEntries} writes them or by hand, without a first line. Throws `usage`,
 * naming the line and never a value: for what is no entry, a text that was cut, and a passphrase that does not fit.
 */
export async function entriesOfLines(text: string, passphrase: string | undefined): Promise<LiveEntry[]> {
  const lines = text.split("\n").map((line, index) => ({ line, place: `line ${index + 1}` }));
  const written = lines.filter(({ line }) => line.trim() !== "");
  const [first] = written;
  const opening = first && parsedJson(first.line);
  const head = first && isObject(opening) && "ops_kv" in opening ? shaped(HEAD, first) : undefined;
  const rest = written.slice(head ? 1 : 0);
  if (head && head.entries !== rest.length)
    throw new Failure("usage", `stdin: the first line tells of ${head.entries} entries, and there are ${rest.length}`);
  const sealKey = passphrase === undefined || head?.salt === undefined ? undefined : await sealKeyOf(passphrase, head.salt);
  return rest.map((one) => {
    const { namespace, key, value, sealed = "", ttl } = shaped(LINE, one);
    const wrong = (why: string) => new Failure("usage", `stdin, ${one.place}: ${why}`);
    if (value !== undefined) return { namespace, key, value, ttl };
    if (sealed === "") throw wrong("value is missing");
    if (!sealKey) throw wrong("the value is sealed: name the file of its passphrase with --passphrase-file");
    const opened = tryUnseal(sealKey, namespace, key, sealed);
    if (opened === undefined) throw wrong("the passphrase does not open the value");
    return { namespace, key, value: opened, ttl };
  });
}

function shaped<T>(shape: Shape<T>, { line, place }: { line: string; place: string }): T {
  const found = check(shape, parsedJson(line));
  if (found.ok) return found.value;
  const [{ path, message } = { path: "", message: "" }] = found.problems;
  throw new Failure("usage", `stdin, ${place}: ${path === "" ? "" : `${path}: `}${message}`);
}

async function sealKeyOf(passphrase: string, salt: string): Promise<Buffer> {
  const derive = promisify(scrypt) as (secret: string, salt: string, length: number, cost: typeof COST) => Promise<Buffer>;
  return await derive(passphrase, salt, KEY_BYTES, COST);
}

/** Writes all entries, or none. Throws `unknown_name` for a job that the catalog does not have. */
export function storeEntries(db: Database, kv: KvStore, entries: readonly LiveEntry[]): void {
  const jobs = db.tuples<[string]>("SELECT name FROM job").flat();
  for (const { namespace, key, value, ttl = 0 } of entries) {
    const job = namespace.replace(/^.*\//, "");
    if (!jobs.includes(job)) throw new Failure("unknown_name", `${unknownName("job", job, jobs)} (key ${quote(key)})`);
    kv.put(namespace, key, value, ttl);
  }
  kv.flush();
}
