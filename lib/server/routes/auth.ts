import { cookieOf, isOwnRequest, SESSION_PATH, totpRequired, VERIFY_PATH } from "../../auth/guard.ts";
import type { Session, SessionHolder } from "../../auth/session.ts";
import { Failure } from "../../core/errors.ts";
import { described, object, secret, string, withExample } from "../../core/shape.ts";
import { failureAnswer, type HttpRequest, json } from "../../http/message.ts";
import { type Context, route } from "../context.ts";
import { component } from "./shapes.ts";

const CODE = object({
  code: described(
    withExample(secret(string()), "492039"),
    "The 6 digits that the authenticator app shows; good for one use. Any other text is a wrong code",
  ),
});

/** Signing in and out of a browser, and the second factor (control-plane.md, Authentication). */
export const AUTH_ROUTES = [
  route(`POST ${SESSION_PATH}`, "read", {
    summary: "Sign in: exchange the API token for a browser session",
    description: "Takes the API token in the Authorization header and sets the cookie `ops_server_session`.",
    answer: { status: 200, description: "Signed in", shape: component("Session") },
    async handle({ request }, context) {
      const { identity, sessions } = context;
      // A session must not be able to prolong itself.
      if (identity.via !== "bearer") throw new Failure("unauthorized", "signing in takes Authorization: Bearer <API token>");
      const { session, cookie } = sessions.issue(holderOf(context, request));
      return json(200, sessionBody(session, context, request), { "Set-Cookie": cookie });
    },
  }),
  route(`GET ${SESSION_PATH}`, "read", {
    summary: "Show how long the session of this request lasts",
    answer: { status: 200, description: "Signed in", shape: component("Session") },
    handle: async ({ request }, context) => json(200, sessionBody(context.identity.session, context, request)),
  }),
  route(`DELETE ${SESSION_PATH}`, "read", {
    summary: "Sign out: end the sessions of this request and clear their cookies",
    description:
      "Where TOTP is on and missing the answer is 403 `totp_required`; with a same-origin `Origin` and " +
      "`X-Ops-CSRF: 1` the sessions end and the cookies are cleared all the same.",
    answer: { status: 204, description: "Signed out" },
    async handle({ request }, { identity, sessions, totpSessions }) {
      const lacksTotp = identity.codes !== undefined && !identity.totp;
      if (lacksTotp && !isOwnRequest(request)) throw totpRequired();
      const cookies = [sessions, totpSessions].map((one) => one.end(cookieOf(request)));
      const refusal = failureAnswer(totpRequired(), request.id);
      const answer = lacksTotp ? refusal : { status: 204 };
      return { ...answer, headers: { ...answer.headers, "Set-Cookie": cookies } };
    },
  }),
  route(`POST ${VERIFY_PATH}`, "read", {
    summary: "Verify a TOTP code: sets the cookie `ops_totp_session`",
    description:
      "Needs the API token or a browser session, but no TOTP. A code counts once: this code and every earlier one are " +
      "refused from then on, for all clients.",
    body: CODE,
    answer: {
      status: 200,
      description: "Verified",
      shape: object({ expires_at: described(string(), "When the TOTP session ends") }),
    },
    failures: ["invalid_totp_code", "totp_disabled"],
    async handle({ request, body }, context) {
      const { identity, totpSessions } = context;
      if (!identity.codes?.accept(request.peer, body.code)) {
        request.noted.refused = "totp_wrong";
        throw new Failure("invalid_totp_code", "the TOTP code is wrong, too old or was used before");
      }
      const { session, cookie } = totpSessions.issue(holderOf(context, request));
      return json(200, { expires_at: new Date(session.exp).toISOString() }, { "Set-Cookie": cookie });
    },
  }),
];

const LONGEST_AGENT = 200;

/** Whose a new session is. It ends with its token, and not with the session that it may have been asked for in. */
function holderOf({ access, identity: { name, token: id, address } }: Context, { headers }: HttpRequest): SessionHolder {
  const token = id === undefined ? undefined : access.byId(id);
  const agent = String(headers["user-agent"] ?? "").replace(/[^\x20-\x7e]/g, "?");
  const ends = token && access.endOf(token);
  return { name, token: id, ends, address, agent: agent.slice(0, LONGEST_AGENT) };
}

/** A request that gets here has proven TOTP where its token needs TOTP. */
function sessionBody(session: Session | undefined, { identity, totpSessions }: Context, request: HttpRequest) {
  const { name, role, buckets, totp } = identity;
  return {
    expires_at: endOfSession(session),
    totp: { enabled: totp, verified: totp },
    totp_expires_at: endOfSession(totp ? totpSessions.verify(cookieOf(request)) : undefined),
    name,
    role,
    buckets: buckets ?? null,
  };
}

function endOfSession(session: Session | undefined): string | null {
  return session ? new Date(session.exp).toISOString() : null;
}
