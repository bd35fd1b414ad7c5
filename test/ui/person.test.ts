import assert from "node:assert/strict";
import { test } from "node:test";
import { covers, ROLES } from "../../lib/auth/role.ts";
import { ruleOf } from "../../lib/server/people/permission.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
// @ts-expect-error: the console has no declarations.
import { lackedRole, person } from "../../ui/base/person.js";

/** Signing in and out is no order; the page itself gives up a wish to wait; of proposals it is asked who may decide. */
const NO_ORDER = /^\/api\/auth\/|\/(?:queue|proposals)\b/;

test("CP-940 the console knows of each order which role it needs: that of the route table", (t) => {
  t.after(() => Object.assign(person, { role: "root" }));
  const orders = ROUTES.filter(({ method, path }) => method !== "GET" && !NO_ORDER.test(path));
  assert.ok(orders.length > 30);
  for (const { method, path, role: needs } of orders) {
    const below = path.replace("/api/buckets/{bucket_id}", "").replace(/\{\w+\}/g, "x");
    const { role, or } = ruleOf(needs);
    for (const own of ROLES) {
      person.role = own;
      assert.equal(lackedRole({ path: below }), covers(own, role) ? undefined : role, `${own}: ${method} ${path}`);
      if (or === undefined || path !== "/api/buckets/{bucket_id}/deploy") continue;
      const lacked = lackedRole({ path: below, body: { dry_run: true } });
      assert.equal(lacked, covers(own, or.role) ? undefined : or.role, `${own}: dry run`);
      assert.equal(lackedRole({ path: below, body: { dry_run: true, build: true } }), covers(own, role) ? undefined : role);
    }
  }
});
