import assert from "node:assert/strict";
import { test } from "node:test";
import { covers, ROLES, type Role } from "../../lib/auth/role.ts";

test("a role may do what is asked of it and of each role before it, and no more", () => {
  const roles: Role[] = ["read", "operate", "deploy", "admin", "root"];
  assert.deepEqual(ROLES, roles);
  for (const [at, role] of roles.entries()) {
    const covered = roles.filter((needed) => covers(role, needed));
    assert.deepEqual(covered, roles.slice(0, at + 1), role);
  }
});
