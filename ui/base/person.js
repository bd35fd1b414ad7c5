/** Who is signed in, as the session says: the name of the token, its role, and its buckets where it has not all of them. */
export const person = { name: "root", role: "root", buckets: null };

/** Least first. */
const ROLES = ["read", "operate", "deploy", "admin", "root"];
/** The orders of the lesser roles by their paths, most of them below a bucket. All others are for admins. */
const ORDERS_OF = {
  read: /^\/api\/sessions\/[^/]+$/,
  operate: /^\/(health_check|drift|jobs\/[^/]+\/\w+|workers\/(facts|uptime|sysstat)|snapshots\/[^/]+\/verify)$/,
  deploy:
    /^\/(push|build|deploy|hooks|run_command|source\/rollback|schedules\/[^/]+\/(run|pause|resume)|runs\/[^/]+\/cancel|messages\/(test|[^/]+\/retry)|proposals(\/.+)?)$/,
};

/** What has a dry run that the role operate may start. */
const PLANNED = /^\/(deploy|kv\/rekey|ca\/rotate|secrets\/ssh_key\/rotate)$/;

/** Whether the person has this role or a greater one. */
export function has(role) {
  return ROLES.indexOf(person.role) >= ROLES.indexOf(role);
}

/** Which role something needs, and which the person has: `This needs the role deploy; you are ada and have read.` */
export function needsRole(what, role) {
  return `${what} needs the role ${role}; you are ${person.name} and have ${person.role}.`;
}

/** An admin of all buckets. */
export function isAdmin() {
  return has("admin") && !person.buckets;
}

/**
 * The role that an order needs and the person does not have; undefined where it may be given.
 * @param {{ path: string, body?: any }} order
 */
export function lackedRole({ path, body }) {
  const isDryRun = PLANNED.test(path) && body?.dry_run && !body.build && !body.with_hooks;
  const needed = isDryRun ? "operate" : (Object.keys(ORDERS_OF).find((role) => ORDERS_OF[role].test(path)) ?? "admin");
  return has(needed) ? undefined : needed;
}
