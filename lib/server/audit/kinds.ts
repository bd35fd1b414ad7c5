import type { AuditKind } from "../../audit/line.ts";
import { SESSION_PATH, VERIFY_PATH } from "../../auth/guard.ts";
import { START_PATHS } from "../routes/start-paths.ts";

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
const STARTS: ReadonlySet<string> = new Set(Object.values(START_PATHS).map((path) => `POST ${path}`));

/** What a request to a route is about, in the audit. */
export function auditKindOf({ method, path }: { method: string; path: string }): AuditKind {
  const action = `${method} ${path}`;
  const [, kind] = AUDIT_RULES.find(([pattern]) => pattern.test(action)) ?? [];
  return kind ?? (STARTS.has(action.replace(/\/api\/(?:buckets|envs)\/\{\w+\}/, "")) ? "start" : "change");
}
