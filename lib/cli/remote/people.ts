import { Failure } from "../../core/errors.ts";
import { type Infer, quote } from "../../core/shape.ts";
import type { Parsed, Target } from "../base/flags.ts";
import { factLines, printAnswer, printList, shortId } from "../base/terminal.ts";
import type { TokenBook } from "../state/tokens.ts";
import type { ApiClient } from "./client.ts";
import { bucketNamed, expectAnswer } from "./remote-bucket.ts";
import { openServer } from "./target.ts";

const TOKENS = "/api/tokens";
const SESSIONS = "/api/sessions";

/** The tokens of a server, over HTTP. */
export async function tokensOn(target: Target): Promise<TokenBook> {
  const client = await openServer(target);
  const { MADE_TOKEN, TOKEN_LIST } = await import("../../server/people/tokens.ts");
  return {
    all: async () => expectAnswer(TOKEN_LIST, await client.call("GET", TOKENS)).items,
    make: async (wanted) => expectAnswer(MADE_TOKEN, await client.call("POST", TOKENS, { json: wanted })),
    revoke: async (given) => void (await client.call("DELETE", `${TOKENS}/${encodeURIComponent(given)}`)),
    bucketNamed: (given) => bucketNamed(client, given),
  };
}

type Identity = Infer<typeof import("../../server/people/sessions.ts").IDENTITY>;

/** Who a client is; undefined where the server is older than that question. */
export async function identityOn(client: ApiClient): Promise<Identity | undefined> {
  const { IDENTITY } = await import("../../server/people/sessions.ts");
  try {
    return expectAnswer(IDENTITY, await client.call("GET", "/api/identity"));
  } catch (error) {
    if (error instanceof Failure && error.code === "not_found") return undefined;
    throw error;
  }
}

/** ` as ada (deploy)`, ` as root`; nothing where the server does not say who one is. */
export function asWhom({ name, role }: { name?: string | undefined; role?: string | undefined } = {}): string {
  if (name === undefined) return "";
  return name === role ? ` as ${name}` : ` as ${name} (${role})`;
}

/** `ops whoami`: who one is on a server, and what one may do there. */
export async function whoami(input: Parsed, target: Target): Promise<number> {
  const client = await openServer(target);
  const found = await identityOn(client);
  if (!found) throw new Failure("failed", `the server at ${client.base.origin} is older than this question`);
  return printAnswer(
    input,
    found,
    factLines([
      ["name", found.name],
      ["role", found.role],
      ["buckets", found.buckets?.join(", ") ?? "all"],
      ["expires", found.expires_at ?? "never"],
      ["by", `${found.via === "session" ? "a session" : "the token"}, from ${found.address}`],
    ]),
  );
}

/** `ops sessions list`: the browser sessions, and those of `ops login`. */
export async function listSessions(input: Parsed, target: Target): Promise<number> {
  const items = await sessionsOf(await openServer(target));
  return printList(input, items, "no session is open", {
    id: ({ id }) => shortId(id),
    name: ({ name, current }) => (current ? `${name} (this one)` : name),
    from: ({ address }) => address,
    opened: ({ created_at: at }) => at,
    "last used": ({ last_used_at: at }) => at,
    ends: ({ expires_at: at }) => at,
    browser: ({ agent }) => agent,
  });
}

/** `ops sessions end <id>`: a session by its id, or by the beginning or end of the id. */
export async function endSession(input: Parsed, target: Target): Promise<number> {
  const given = input.operands[0] ?? "";
  const client = await openServer(target);
  const [found, ...others] = (await sessionsOf(client)).filter(({ id }) => id.startsWith(given) || id.endsWith(given));
  if (!found) throw new Failure("not_found", `there is no session ${quote(given)}; \`ops sessions\` shows them`);
  if (others.length > 0) throw new Failure("usage", `${quote(given)} means ${others.length + 1} sessions: give more of its id`);
  await client.call("DELETE", `${SESSIONS}/${found.id}`);
  return printAnswer(input, { id: found.id }, `the session ${shortId(found.id)} of ${found.name} has ended\n`);
}

async function sessionsOf(client: ApiClient) {
  const { SESSION_LIST } = await import("../../server/people/sessions.ts");
  return expectAnswer(SESSION_LIST, await client.call("GET", SESSIONS)).items;
}
