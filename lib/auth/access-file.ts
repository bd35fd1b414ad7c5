import { base32Decode } from "../codec/crypto/totp.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { OF_OTHERS, readBounded } from "../core/files.ts";
import {
  check,
  described,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  parsedJson,
  quote,
  record,
  refined,
  string,
  withExample,
} from "../core/shape.ts";
import { ROOT_NAME } from "./role.ts";

const ANY_UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** How many tokens there may be, and how many buckets one may be limited to. */
export const MOST_TOKENS = 500;
const MOST_BUCKETS = 100;
/** Room for as many tokens with as many buckets. */
const ACCESS_BYTES = 4 * 1024 * 1024;

/** The roles that a token may be given. */
export const TOKEN_ROLES = ["read", "operate", "deploy", "admin"] as const;
/** Which second factor a token asks for: that of the server, where it has one, one of its own, or none. */
export const TOTP_WAYS = ["common", "own", "none"] as const;

/** The name of a token: that of a person or a program. No name is an id of a token, or the server's own. */
export const TOKEN_NAME = refined(
  withExample(
    string({ max: 64, pattern: /^[A-Za-z0-9][A-Za-z0-9._@-]*$/, means: "letters, digits and ._@-, a letter or digit first" }),
    "ada",
  ),
  (name, path, report) => {
    const lower = String(name).toLowerCase();
    if (lower === ROOT_NAME) report(path, "root is the name of the server's own token");
    if (ANY_UUID.test(lower)) report(path, "expected a name, found an id");
    return name;
  },
);
const EXAMPLE_ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const BUCKET_ID = withExample(string({ pattern: ANY_UUID, means: "the id of a bucket" }), EXAMPLE_ID);
/** The buckets that a token is for. */
export const TOKEN_BUCKETS = list(BUCKET_ID, { min: 1, max: MOST_BUCKETS });

/** What anybody who may list tokens sees of one. */
export const TOKEN_FIELDS = {
  id: withExample(string({ pattern: ANY_UUID, means: "an id" }), EXAMPLE_ID),
  name: TOKEN_NAME,
  role: oneOf(...TOKEN_ROLES),
  buckets: described(nullable(TOKEN_BUCKETS), "null: all buckets"),
  created_at: string(),
  created_by: described(string(), "The name of the token that made it, or who did on the server's command line"),
  expires_at: described(nullable(string()), "null: never"),
  last_used_on: described(
    nullable(withExample(string({ pattern: /^\d{4}-\d\d-\d\d$/, means: "a day" }), "2026-05-04")),
    "The last day of use, in UTC",
  ),
  totp: described(oneOf(...TOTP_WAYS), "The second factor: the server's, where it has one (`common`), its own, or none"),
};

const KEPT_TOKEN = object({
  ...TOKEN_FIELDS,
  sha256: string({ pattern: /^[0-9a-f]{64}$/, means: "a SHA-256" }),
  /** Base32; with `own` alone. */
  totp_secret: nullable(string()),
});
/** A token as it is kept: everything but the token itself. */
export type AccessToken = Infer<typeof KEPT_TOKEN>;

const ACCESS = object({
  tokens: list(KEPT_TOKEN, { max: MOST_TOKENS }),
  /** How many others must approve a run, by the id of the bucket. */
  approvals: record(integer({ min: 1, max: 2 }), { key: ANY_UUID, means: "the id of a bucket" }),
});
/** `access.json`: who may call besides the server's own token. */
export type AccessState = Infer<typeof ACCESS>;

/** What two tokens, or two fields of one, contradict each other in; undefined where there is nothing. */
function contradiction({ tokens }: AccessState): string | undefined {
  const seen = new Set<string>();
  for (const { id, name, sha256, role, totp, totp_secret } of tokens) {
    const key = [id, name.toLowerCase(), sha256].find((one) => seen.has(one));
    if (key !== undefined) return `${quote(key)} stands there twice`;
    for (const one of [id, name.toLowerCase(), sha256]) seen.add(one);
    if (totp === "none" && role !== "read") return `the token ${quote(name)} has totp none, which goes only with the role read`;
    const isSecret = Boolean(base32Decode(totp_secret ?? "")?.length);
    if (isSecret !== (totp === "own")) return `totp and totp_secret of the token ${quote(name)} disagree`;
  }
  return undefined;
}

/** What the file says; nothing where there is none. Throws `failed` for a file that is damaged or that others may use. */
export async function readAccess(file: string): Promise<AccessState> {
  try {
    const bytes = await readBounded(file, ACCESS_BYTES, OF_OTHERS);
    if (!bytes) return { tokens: [], approvals: {} };
    const checked = check(ACCESS, parsedJson(bytes.toString()));
    const [problem] = checked.ok ? [] : checked.problems;
    const wrong = checked.ok ? contradiction(checked.value) : `${problem?.path} ${problem?.message}`.trim();
    if (!checked.ok || wrong !== undefined) throw new Failure("failed", String(wrong));
    return checked.value;
  } catch (cause) {
    throw new Failure("failed", `Cannot use ${file}: ${messageOf(cause)}; nobody is let in before it is mended`, { cause });
  }
}
