import assert from "node:assert/strict";
import { test } from "node:test";
import { HOOK_EVENTS } from "../../../lib/bucket/base/model.ts";
import { isOfJob, mayWrite, readableNamespaces } from "../../../lib/bucket/kv/kv-access.ts";

const READER = { job: "web", worker: "10.0.0.1", upstream: ["db"] };
const ROUTES = ["/kv", "/kv/secret"] as const;

test("HR-196 HR-198 HR-200 T-94 a job reads its own namespaces, the bucket's and those of its upstream jobs", () => {
  assert.deepEqual([...readableNamespaces(READER)].sort(), [
    ...["ops/bucket", "ops/job/db", "ops/job/web", "ops/job/web/worker/10.0.0.1", "ops/worker"],
    ...["ops/worker/10.0.0.1", "ops/worker/10.0.0.1/tags", "secrets/job/db", "secrets/job/web"],
    ...["vars/bucket", "vars/bucket/job/web", "vars/job/db", "vars/job/web"],
  ]);
});

test("HR-187 HR-189 HR-192 HR-201 HR-202 what a script may write, on every event, is three namespaces of its job", () => {
  const namespaces = [...readableNamespaces(READER), "vars/job/webs", "vars/job/web/", "vars/job/web/x", "tags", ""];
  for (const event of HOOK_EVENTS)
    for (const route of ROUTES)
      for (const namespace of namespaces) {
        const isOwn = namespace === (route === "/kv" ? "vars/job/web" : "secrets/job/web");
        assert.equal(mayWrite("web", event, { route, namespace, key: "k" }), isOwn, `${event} ${route} ${namespace}`);
      }
});

for (const event of HOOK_EVENTS)
  test(`HR-181 HR-183 HR-185 rollout_order may ${["pre_deploy", "cli"].includes(event) ? "" : "not "}be written on ${event}`, () => {
    const isOpen = event === "pre_deploy" || event === "cli";
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/web", key: "rollout_order" }), isOpen);
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/web", key: "version" }), false);
    assert.equal(mayWrite("web", event, { route: "/kv/secret", namespace: "ops/job/web", key: "rollout_order" }), false);
    assert.equal(mayWrite("web", event, { route: "/kv", namespace: "ops/job/db", key: "rollout_order" }), false);
  });

for (const [name, expected] of [
  ["vars/job/web", true],
  ["secrets/job/web", true],
  ["ops/job/web", true],
  ["ops/job/web/worker/10.0.0.1", true],
  ["vars/job/webs", false],
  ["vars/bucket/job/web", false],
  ["ops/bucket", false],
  ["ops/worker/web", false],
] as const)
  test(`${name} is ${expected ? "" : "not "}of job web`, () => assert.equal(isOfJob(name, "web"), expected));
