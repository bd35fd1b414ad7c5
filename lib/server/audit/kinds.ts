import type { AuditKind } from "../../audit/line.ts";
import { SESSION_PATH, VERIFY_PATH } from "../../auth/guard.ts";
import type { ServerRoute } from "../context.ts";

/** What a request is about, by method and path of its route; the first that fits. */
const AUDIT_RULES: readonly [RegExp, AuditKind][] = [
  [new RegExp(`^POST (?:${SESSION_PATH}|${VERIFY_PATH}|/signin)$`), "sign_in"],
  [new RegExp(`^DELETE (?:${SESSION_PATH}|/signin)$`), "sign_out"],
  [/\/cancel$/, "cancel"],
  [/\/(?:tokens|sessions)\b/, "token"],
  [/\/(?:proposals|approve|reject)\b/, "approval"],
  [/\/secrets\/|\/(?:rekey|rotate|import|trust)\b|\/ca\b/, "key"],
  [/\/restore$/, "restore"],
  [/^DELETE /, "delete"],
];

/** What a request to a route is about, in the audit. */
export function auditKindOf({ method, path, headers = {} }: Pick<ServerRoute, "method" | "path" | "headers">): AuditKind {
  const [, kind] = AUDIT_RULES.find(([pattern]) => pattern.test(`${method} ${path}`)) ?? [];
  // Every route that starts a run takes this header.
  return kind ?? ("Idempotency-Key" in headers ? "start" : "change");
}
