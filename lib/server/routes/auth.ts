import { cookieOf } from "../../auth/guard.ts";
import type { Session } from "../../auth/session.ts";
import { Failure } from "../../core/errors.ts";
import { json } from "../../http/message.ts";
import { route } from "../context.ts";
import { component } from "./shapes.ts";

const SESSION_PATH = "/api/auth/session";

/** Signing in and out of a browser (control-plane.md, Authentication). */
export const AUTH_ROUTES = [
  route({
    method: "POST",
    path: SESSION_PATH,
    summary: "Sign in: exchange the API token for a browser session",
    description: "Takes the API token in the Authorization header and sets the cookie `ops_server_session`.",
    answer: { status: 200, description: "Signed in", shape: component("Session") },
    async handle(_, { identity, sessions }) {
      // A session must not be able to prolong itself.
      if (identity.via !== "bearer")
        throw new Failure("unauthorized", "signing in takes Authorization: Bearer <API token>");
      const { session, cookie } = sessions.issue();
      return json(200, sessionBody(session), { "Set-Cookie": cookie });
    },
  }),
  route({
    method: "GET",
    path: SESSION_PATH,
    summary: "How long the session of this request lasts",
    answer: { status: 200, description: "Signed in", shape: component("Session") },
    async handle(_, { identity }) {
      return json(200, sessionBody(identity.session));
    },
  }),
  route({
    method: "DELETE",
    path: SESSION_PATH,
    summary: "Sign out: end the session and clear its cookie",
    answer: { status: 204, description: "Signed out" },
    async handle({ request }, { sessions }) {
      const session = sessions.verify(cookieOf(request));
      if (session) sessions.revoke(session);
      return { status: 204, headers: { "Set-Cookie": sessions.clearing() } };
    },
  }),
  route({
    method: "POST",
    path: "/api/auth/totp/verify",
    summary: "Verify a TOTP code; this version has no TOTP, so there is nothing to verify",
    answer: { status: 200, description: "Verified" },
    failures: ["totp_disabled"],
    async handle() {
      throw new Failure("totp_disabled", "TOTP is not enabled on this server");
    },
  }),
];

function sessionBody(session: Session | undefined) {
  return {
    expires_at: session ? new Date(session.exp).toISOString() : null,
    totp: { enabled: false, verified: false },
  };
}
