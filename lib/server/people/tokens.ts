import { type AccessToken, TOKEN_BUCKETS, TOKEN_FIELDS, TOKEN_NAME, TOKEN_ROLES, TOTP_WAYS } from "../../auth/access-file.ts";
import type { AccessStore } from "../../auth/access-store.ts";
import { bucketIds } from "../../bucket/source/root.ts";
import { base32Decode, otpauthUri } from "../../codec/crypto/totp.ts";
import type { Problem } from "../../core/errors.ts";
import {
  boolean,
  described,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  string,
  withDefault,
  withExample,
} from "../../core/shape.ts";
import { invalidRequest, json } from "../../http/message.ts";
import { route } from "../context.ts";
import { requireRole } from "./permission.ts";

/** Ten years: a longer wish is a mistake. */
const LONGEST_LIFETIME_S = 10 * 366 * 86_400;

/** Tokens are for root and for admins of all buckets. */
const ADMINS = { role: "admin", everywhere: true } as const;
const SHOWN_TOKEN = { ...TOKEN_FIELDS, expired: described(boolean(), "Its time is over") };

/** The body of a request for a new token. */
export const NEW_TOKEN = object({
  name: TOKEN_NAME,
  role: withDefault(oneOf(...TOKEN_ROLES), "read"),
  buckets: optional(described(TOKEN_BUCKETS, "The ids of the buckets that it is for (default: all)")),
  lifetime_s: optional(described(integer({ min: 1, max: LONGEST_LIFETIME_S }), "Seconds until it expires (default: never)")),
  totp: withDefault(
    described(oneOf(...TOTP_WAYS), "`own` makes a secret, shown once; `none`, for programs, goes only with the role read"),
    "common",
  ),
});

/** The answer with all tokens. */
export const TOKEN_LIST = object({ items: list(object(SHOWN_TOKEN)) });
/** The answer with a new token. */
export const MADE_TOKEN = object({
  ...SHOWN_TOKEN,
  token: withExample(described(string(), "What goes into the Authorization header"), "ops_3f5b…"),
  totp_secret: described(nullable(string()), "In base32, for an authenticator; null unless it has one of its own"),
  totp_uri: described(nullable(string()), "The same as otpauth:// address"),
});

/** The tokens beside the server's own (control-plane.md, Tokens). */
export const TOKEN_ROUTES = [
  route("GET /api/tokens", ADMINS, {
    summary: "List the tokens, the oldest first",
    description: "Never the tokens themselves: of each only its SHA-256 is kept, which is not shown.",
    answer: { status: 200, description: "All tokens, 500 at most", shape: TOKEN_LIST },
    handle: async (_, { access }) => json(200, { items: access.tokens.map((token) => shownToken(token, access)) }),
  }),
  route("POST /api/tokens", ADMINS, {
    summary: "Make a token for a person or a program",
    description: "The answer alone has the token, and its TOTP secret where it gets one of its own.",
    body: NEW_TOKEN,
    answer: { status: 201, description: "The new token", shape: MADE_TOKEN },
    async handle({ body }, { access, root, identity }) {
      requireRole(identity, body.role);
      return json(201, await newToken(access, root, { ...body, created_by: identity.name }));
    },
  }),
  route("DELETE /api/tokens/{token}", ADMINS, {
    summary: "Revoke a token, by its name or id",
    description: "At once: its sessions and long-polls end, and no request of it starts anything more. Its runs go on.",
    answer: { status: 204, description: "There is no such token any more" },
    failures: ["not_found"],
    async handle({ params: { token = "" } }, { access }) {
      await access.revoke(token);
      return { status: 204 };
    },
  }),
];

/** A token as lists show it. */
export function shownToken({ sha256: _, totp_secret: __, ...shown }: AccessToken, access: Pick<AccessStore, "isExpired">) {
  return { ...shown, expired: access.isExpired(shown) };
}

/** Makes a token and answers what is shown once. Throws `invalid_request`. */
export async function newToken(
  access: AccessStore,
  root: string,
  { lifetime_s, buckets, ...wanted }: Infer<typeof NEW_TOKEN> & Pick<AccessToken, "created_by">,
) {
  const problems = [...totpProblems(wanted), ...(await unknownBuckets(root, buckets ?? []))];
  if (problems.length > 0) throw invalidRequest(problems);
  const lifetimeMs = lifetime_s === undefined ? undefined : lifetime_s * 1000;
  const { token, text } = await access.create({ ...wanted, buckets: buckets ?? null, lifetimeMs });
  return { ...shownToken(token, access), token: text, ...totpOf(token) };
}

/** What an authenticator needs of a new token. */
function totpOf({ name, totp_secret }: AccessToken) {
  const secret = base32Decode(totp_secret ?? "");
  if (totp_secret === null || !secret) return { totp_secret: null, totp_uri: null };
  return { totp_secret, totp_uri: otpauthUri({ issuer: "ops", account: name, secret }) };
}

/** A token that needs no second factor must not be able to change anything. */
function totpProblems({ role, totp }: Pick<AccessToken, "role" | "totp">): Problem[] {
  return totp === "none" && role !== "read" ? [{ path: "totp", message: "none goes only with the role read" }] : [];
}

async function unknownBuckets(root: string, wanted: readonly string[]): Promise<Problem[]> {
  const known = new Set(wanted.length === 0 ? [] : await bucketIds(root));
  const missing = [...wanted.entries()].filter(([, id]) => !known.has(id));
  return missing.map(([at]) => ({ path: `buckets/${at}`, message: "there is no such bucket" }));
}
