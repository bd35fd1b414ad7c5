import assert from "node:assert/strict";
import { test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import { covers, ROLES, type Role } from "../../../lib/auth/role.ts";
import { isInReach, requireAllowed, requireExactly, requireGoingOn, ruleOf } from "../../../lib/server/people/permission.ts";
import { START_ROUTES } from "../../../lib/server/routes/start-paths.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";

const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const OTHER = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e71";

function identity(role: Role, buckets?: string[]): Identity {
  const nothing = { session: undefined, codes: undefined, totp: false, ends: undefined };
  return { name: "ada", role, buckets, token: "t", address: "::1", via: "bearer", ...nothing };
}

/** The roles that a route lets through before its body is read. */
function admitted(needs: Parameters<typeof requireAllowed>[1]): Role[] {
  return ROLES.filter((role) => {
    try {
      requireAllowed(identity(role), needs, BUCKET);
      return true;
    } catch {
      return false;
    }
  });
}

test("CP-500 the column role decides: a role may do what the lesser ones may, and the refusal names the role it needs", () => {
  assert.deepEqual(admitted("read"), ["read", "operate", "deploy", "admin", "root"]);
  assert.deepEqual(admitted("operate"), ["operate", "deploy", "admin", "root"]);
  assert.deepEqual(admitted("deploy"), ["deploy", "admin", "root"]);
  assert.deepEqual(admitted("admin"), ["admin", "root"]);
  assert.deepEqual(admitted("root"), ["root"]);
  assert.throws(() => requireAllowed(identity("read"), "admin", undefined), {
    code: "forbidden",
    message: 'this needs the role admin; the token "ada" has read',
    details: { role: "admin" },
  });
});

test("CP-500 every route of the table names its role: GET needs read, a change more, and no route only the server's own token", () => {
  for (const { method, path, role } of ROUTES) {
    const rule = ruleOf(role);
    const least = rule.or?.role ?? rule.role;
    assert.ok(ROLES.includes(rule.role), `${method} ${path} has no role`);
    if (path === "/api/tokens") assert.deepEqual(rule, { role: "admin", everywhere: true });
    else if (method === "GET") assert.deepEqual([rule.role, rule.or], ["read", undefined], path);
    else if (path.startsWith("/api/buckets")) assert.ok(covers(least, "operate"), `${method} ${path} is a change`);
    assert.ok(covers("admin", rule.role), `${method} ${path}`);
  }
});

test("CP-501 a dry run needs operate, unless it builds or runs hooks; a deploy needs deploy", () => {
  const rule = START_ROUTES.deploy.role;
  assert.equal(ROUTES.find(({ path }) => path.endsWith(START_ROUTES.deploy.path))?.role, rule);
  requireAllowed(identity("operate"), rule, BUCKET);
  const ask = (role: Role, body: object) => requireExactly(rule, { body }, { identity: identity(role) });
  ask("operate", { dry_run: true });
  for (const body of [{}, { dry_run: false }, { dry_run: true, build: true }, { dry_run: true, with_hooks: true }]) {
    assert.throws(() => ask("operate", body), { code: "forbidden", details: { role: "deploy" } }, JSON.stringify(body));
    ask("deploy", body);
  }
});

test("CP-502 a token of some buckets is refused on every other one, whatever its role", () => {
  const mine = identity("admin", [BUCKET]);
  requireAllowed(mine, "read", BUCKET);
  requireAllowed(mine, "read", BUCKET.toUpperCase());
  requireAllowed(mine, "read", undefined);
  const message = `the token "ada" is not for bucket "${OTHER}"`;
  assert.throws(() => requireAllowed(mine, "read", OTHER), { code: "forbidden", message });
  assert.throws(() => requireAllowed(mine, { role: "admin", everywhere: true }, undefined), { code: "forbidden" });
  requireAllowed(identity("admin"), { role: "admin", everywhere: true }, undefined);
  assert.deepEqual([isInReach(mine, BUCKET), isInReach(mine, OTHER), isInReach(identity("read"), OTHER)], [true, false, true]);
});

test("CP-506 nothing is done any more for a token or a session that has ended", () => {
  const message = "the token or the session of this request has ended meanwhile";
  assert.throws(() => requireGoingOn({ ends: AbortSignal.abort() }), { code: "unauthorized", message });
  for (const ends of [undefined, new AbortController().signal]) requireGoingOn({ ends });
});
