/**
 * The roles, least first; each may do all that those before it may. `root` is the server's own token alone: no other token
 * can have it.
 */
export const ROLES = ["read", "operate", "deploy", "admin", "root"] as const;
/** What a token may do. */
export type Role = (typeof ROLES)[number];

/** The name of the server's own token; no other token can have it. */
export const ROOT_NAME = "root";

/** Whether a role is enough where `needed` is asked for. */
export function covers(role: Role, needed: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed);
}
