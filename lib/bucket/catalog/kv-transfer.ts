import { hash, randomBytes } from "node:crypto";
import { seal } from "../../codec/crypto/seal.ts";
import { passphraseKey } from "../../codec/crypto/seal-key.ts";
import { Failure } from "../../core/errors.ts";
import { check, integer, isObject, object, optional, parsedJson, quote, type Shape, string } from "../../core/shape.ts";
import type { Database } from "../base/database.ts";
import { requireKnown, unknownName } from "../base/problems.ts";
import type { KvStore } from "../kv/kv.ts";
import { isSecretNamespace, LONGEST_TTL, tryUnseal } from "../kv/kv-access.ts";
import { jobNames } from "./catalog.ts";

/** A key of a job that no build writes: a value of `vars/job/<job>` or `secrets/job/<job>`, in clear. */
export interface LiveEntry {
  namespace: string;
  key: string;
  value: string;
  /** Seconds that are left. */
  ttl?: number | undefined;
}

/** The place that the digest of a sealed export is sealed for. */
const DIGEST = ["ops_kv", "sha256"] as const;
const SALT_BYTES = 16;

const HEAD = object({ ops_kv: integer({ min: 1, max: 1 }), entries: integer({ min: 0 }), salt: optional(string({ max: 100 })) });
/** What the store may hold: hooks put values of any length, and vars.toml may have empty keys and values. */
const LINE = object(
  {
    namespace: string({ pattern: /^(vars|secrets)\/job\/[a-z][a-z0-9_-]{0,99}$/, means: "vars/job/<job> or secrets/job/<job>" }),
    key: string({ pattern: /[^\p{Cs}]*/u, means: "well-formed text" }),
    value: optional(string()),
    sealed: optional(string({ min: 1 })),
    ttl: optional(integer({ min: 1, max: LONGEST_TTL })),
  },
  { exclusive: [["value", "sealed"]] },
);
const LAST = object({ sealed_sha256: string({ max: 200 }) });

/**
 * All keys that no build writes, of all jobs of the catalog or of some of them. `gone` names the jobs that left such keys
 * and are no longer in the catalog. Throws `unknown_name` for a wanted job that is not there.
 */
export function liveEntries(
  db: Database,
  kv: KvStore,
  jobs: readonly string[] | undefined,
  nowMs: number,
): { entries: LiveEntry[]; gone: string[] } {
  const known = jobNames(db);
  const wanted = jobs && requireKnown("in the catalog", { kind: "job", path: "jobs", names: jobs }, known);
  const found = kv.namespaces().flatMap((namespace) => {
    const [, job] = /^(?:vars|secrets)\/job\/(.+)$/.exec(namespace) ?? [];
    return job === undefined ? [] : [{ namespace, job }];
  });
  const entries = found
    .filter(({ job }) => (wanted ?? known).has(job))
    .flatMap(({ namespace }) =>
      [...kv.entries(namespace)].map(([key, value]) => {
        const { ttl = 0, createdMs = 0 } = kv.entry(namespace, key) ?? {};
        return { namespace, key, value, ...(ttl > 0 && { ttl: Math.max(1, Math.ceil(ttl - (nowMs - createdMs) / 1000)) }) };
      }),
    );
  const gone = wanted ? [] : [...new Set(found.map(({ job }) => job).filter((job) => !known.has(job)))];
  return { entries, gone };
}

/**
 * The entries as JSON lines, below a line that says how many. With a passphrase secrets are sealed, and a last line has the
 * digest of all lines above, sealed too: whoever lacks the passphrase cannot change, add or drop a line.
 */
export async function linesOfEntries(entries: readonly LiveEntry[], passphrase: string | undefined): Promise<string> {
  const salt = randomBytes(SALT_BYTES).toString("base64");
  const sealKey = passphrase === undefined ? undefined : await passphraseKey(passphrase, salt);
  const lines = entries.map(({ namespace, key, value, ...rest }) => {
    const isSealed = sealKey !== undefined && isSecretNamespace(namespace);
    return { namespace, key, ...(isSealed ? { sealed: seal(sealKey, namespace, key, value) } : { value }), ...rest };
  });
  const head = { ops_kv: 1, entries: entries.length, ...(sealKey && { salt }) };
  const text = [head, ...lines].map((line) => `${JSON.stringify(line)}\n`).join("");
  if (!sealKey) return text;
  return `${text}${JSON.stringify({ sealed_sha256: seal(sealKey, ...DIGEST, hash("sha256", text)) })}\n`;
}

interface Line {
  line: string;
  place: string;
}

/**
 * The entries of JSON lines, as {@link linesOfEntries} writes them or by hand, without a first line. Throws `usage`,
 * naming the line and never a value: for what is no entry, a text that was cut or, where it is sealed, altered, and a
 * passphrase that is missing or does not fit.
 */
export async function entriesOfLines(text: string, passphrase: string | undefined): Promise<LiveEntry[]> {
  const lines = text.split("\n").map((line, index) => ({ line, place: `line ${index + 1}` }));
  const written = lines.filter(({ line }) => line.trim() !== "");
  const [first] = written;
  const opening = first && parsedJson(first.line);
  const head = first && isObject(opening) && "ops_kv" in opening ? shaped(HEAD, first) : undefined;
  const isSealed = head?.salt !== undefined;
  const rest = written.slice(head ? 1 : 0, isSealed ? -1 : undefined);
  if (head && head.entries !== rest.length)
    throw new Failure("usage", `stdin: the first line tells of ${head.entries} entries, and there are ${rest.length}`);
  if (head?.salt === undefined && passphrase === undefined) return rest.map((one) => entryOf(one, undefined));
  if (head?.salt === undefined) throw new Failure("usage", "stdin is no sealed export: leave --passphrase-file out");
  if (passphrase === undefined)
    throw new Failure("usage", "stdin: the export is sealed: name the file of its passphrase with --passphrase-file");
  const sealKey = await passphraseKey(passphrase, head.salt);
  const entries = rest.map((one) => entryOf(one, sealKey));
  checkDigest(written, sealKey);
  return entries;
}

function checkDigest(written: readonly Line[], sealKey: Buffer): void {
  const last = written.at(-1) as Line;
  const { sealed_sha256: sealed } = shaped(LAST, last);
  const digest = tryUnseal(sealKey, ...DIGEST, sealed);
  if (digest === undefined) throw new Failure("usage", `stdin, ${last.place}: the passphrase does not open the export`);
  const above = written.slice(0, -1).map(({ line }) => `${line}\n`);
  if (digest !== hash("sha256", above.join(""))) throw new Failure("usage", "stdin: the lines are not those that were exported");
}

/** The entry of a line; where the export is sealed, no secret may be in clear. */
function entryOf(one: Line, sealKey: Buffer | undefined): LiveEntry {
  const { namespace, key, value, sealed, ttl } = shaped(LINE, one);
  const wrong = (why: string) => new Failure("usage", `stdin, ${one.place}: ${why}`);
  if (value !== undefined && sealKey && isSecretNamespace(namespace)) throw wrong("the secret of a sealed export is in clear");
  if (value?.isWellFormed() === false) throw wrong("value: expected well-formed text");
  if (value !== undefined) return { namespace, key, value, ttl };
  if (sealed === undefined) throw wrong("value is missing");
  if (!sealKey) throw wrong("the value is sealed, and the first line has no salt");
  const opened = tryUnseal(sealKey, namespace, key, sealed);
  if (opened === undefined) throw wrong("the passphrase does not open the value");
  return { namespace, key, value: opened, ttl };
}

function shaped<T>(shape: Shape<T>, { line, place }: Line): T {
  const value = parsedJson(line);
  if (value === undefined) throw new Failure("usage", `stdin, ${place}: expected an object in JSON`);
  const found = check(shape, value);
  if (found.ok) return found.value;
  const [{ path, message } = { path: "", message: "" }] = found.problems;
  throw new Failure("usage", `stdin, ${place}: ${path === "" ? "" : `${path}: `}${message}`);
}

/** Writes all entries, or none. Throws `unknown_name` for a job that the catalog does not have. */
export function storeEntries(db: Database, kv: KvStore, entries: readonly LiveEntry[]): void {
  const jobs = jobNames(db);
  for (const { namespace, key, value, ttl = 0 } of entries) {
    const job = namespace.replace(/^.*\//, "");
    if (!jobs.has(job)) throw new Failure("unknown_name", `${unknownName("job", job, jobs)} (key ${quote(key)})`);
    kv.put(namespace, key, value, ttl);
  }
  kv.flush();
}
