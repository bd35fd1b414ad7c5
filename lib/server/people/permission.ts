import type { Identity } from "../../auth/guard.ts";
import { covers, type Role } from "../../auth/role.ts";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";

/** What a route asks of a token: the column `role` of the route table. `Q` is what the handler is called with. */
export interface RoleRule<Q, C> {
  role: Role;
  /** A lesser role that is enough for some requests. `says` names them: `for a dry run`. */
  or?: { role: Role; says: string; when(call: Q, context: C): boolean };
  /** Only for tokens that are not limited to some buckets. */
  everywhere?: true;
}

/** A {@link RoleRule}, or a role alone. */
export type Needs<Q, C> = Role | RoleRule<Q, C>;

type AnyNeeds = Needs<never, never>;

/** The whole rule. */
export function ruleOf<Q, C>(needs: Needs<Q, C>): RoleRule<Q, C> {
  return typeof needs === "string" ? { role: needs } : needs;
}

/**
 * The check before the body: throws `forbidden` where no request of this identity to the route can be allowed, be it for
 * its role or for the bucket in the path.
 */
export function requireAllowed(identity: Identity, needs: AnyNeeds, bucketId: string | undefined): void {
  const { role, or, everywhere } = ruleOf(needs);
  requireRole(identity, or?.role ?? role);
  if (everywhere && identity.buckets)
    throw new Failure("forbidden", `this needs a token of all buckets; ${who(identity)} is limited to some`);
  if (bucketId !== undefined && !isInReach(identity, bucketId))
    throw new Failure("forbidden", `${who(identity)} is not for bucket ${quote(bucketId)}`);
}

/**
 * The check once the body is read: throws `forbidden` where this very request needs more than the identity has, and
 * `unauthorized` where the identity has ended.
 */
export function requireExactly<Q, C extends { identity: Identity }>(needs: Needs<Q, C>, call: Q, context: C): void {
  requireGoingOn(context.identity);
  const { role, or } = ruleOf(needs);
  if (or === undefined || covers(context.identity.role, role) || or.when(call, context)) return;
  requireRole(context.identity, role);
}

/** Throws `forbidden`, which names the role, where the identity has a lesser one. */
export function requireRole(identity: Identity, role: Role): void {
  if (covers(identity.role, role)) return;
  const message = `this needs the role ${role}; ${who(identity)} has ${identity.role}`;
  throw new Failure("forbidden", message, { details: { role } });
}

/** Throws `unauthorized` where the token or the session has ended since the request was admitted. */
export function requireGoingOn({ ends }: Pick<Identity, "ends">): void {
  if (ends?.aborted) throw new Failure("unauthorized", "the token or the session of this request has ended meanwhile");
}

/** Whether the identity may know of a bucket. */
export function isInReach({ buckets }: Pick<Identity, "buckets">, bucketId: string): boolean {
  return buckets === undefined || buckets.includes(bucketId.toLowerCase());
}

function who({ name }: Identity): string {
  return `the token ${quote(name)}`;
}
