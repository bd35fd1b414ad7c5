import type { Identity } from "../../auth/guard.ts";
import { covers, ROLES } from "../../auth/role.ts";
import type { Session } from "../../auth/session.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, list, nullable, object, oneOf, quote, string, withExample } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { TIME } from "../../run/progress.ts";
import { route } from "../context.ts";

const SHOWN_SESSION = object({
  id: withExample(string(), "a9b6ebde6519ed4268d5d0b4d0fe15c3"),
  name: described(string(), "The name of the token that it was opened with"),
  address: described(string(), "From where it was opened"),
  agent: described(string(), "What the browser says that it is"),
  created_at: TIME,
  expires_at: TIME,
  last_used_at: TIME,
  current: described(boolean(), "The session of this request"),
});

/** The answer with all sessions. */
export const SESSION_LIST = object({ items: list(SHOWN_SESSION) });
/** The answer about who the client is. */
export const IDENTITY = object({
  name: described(string(), "`root` for the server's own token"),
  role: oneOf(...ROLES),
  buckets: described(nullable(list(string())), "The ids of the buckets that the token is for; null: all"),
  expires_at: described(nullable(TIME), "When the token expires; null: never"),
  via: oneOf("bearer", "session"),
  address: string(),
});

/** Who one is, and the browser sessions (control-plane.md, Tokens). */
export const SESSION_ROUTES = [
  route("GET /api/identity", "read", {
    summary: "Show who the client is, and what it may do",
    answer: { status: 200, description: "The token behind the request", shape: IDENTITY },
    async handle(_, { identity: { name, role, buckets = null, token, via, address }, access }) {
      const { expires_at = null } = (token === undefined ? undefined : access.byId(token)) ?? {};
      return json(200, { name, role, buckets, expires_at, via, address });
    },
  }),
  route("GET /api/sessions", "read", {
    summary: "List the browser sessions, the oldest first",
    description: "One's own; of everybody for root and for admins of all buckets.",
    answer: { status: 200, description: "The sessions that go on", shape: SESSION_LIST },
    async handle(_, { identity, sessions }) {
      const mine = sessions.list().filter((session) => mayEnd(identity, session));
      return json(200, { items: mine.map((session) => shownSession(session, identity)) });
    },
  }),
  route("DELETE /api/sessions/{session_id}", "read", {
    summary: "End a browser session",
    description: "One's own, or, for root and for admins of all buckets, anybody's. What it waits for ends, its runs go on.",
    answer: { status: 204, description: "There is no such session any more" },
    failures: ["not_found"],
    async handle({ params: { session_id = "" } }, { identity, sessions }) {
      const found = sessions.list().find(({ sid }) => sid === session_id);
      if (!found || !mayEnd(identity, found)) throw new Failure("not_found", `there is no session ${quote(session_id)}`);
      sessions.endById(found.sid);
      return { status: 204 };
    },
  }),
];

function mayEnd({ role, buckets, token }: Identity, session: Session): boolean {
  return session.token === token || (covers(role, "admin") && buckets === undefined);
}

function shownSession({ sid, name, address, agent, iat, exp, lastUsed }: Session, { session }: Identity) {
  const [created_at, expires_at, last_used_at] = [iat, exp, lastUsed].map((ms) => new Date(ms).toISOString());
  return { id: sid, name, address, agent, created_at, expires_at, last_used_at, current: sid === session?.sid };
}
