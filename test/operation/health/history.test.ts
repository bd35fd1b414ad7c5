import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { storeFacts } from "../../../lib/bucket/catalog/info.ts";
import { healthChanges } from "../../../lib/bucket/health/health-history.ts";
import { healthCheck } from "../../../lib/operation/health/health-check.ts";
import { drift } from "../../../lib/operation/plan/drift.ts";
import { uptime } from "../../../lib/operation/tend/readings.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { carryOut } from "../../helpers/operations.ts";

const [A] = HOSTS;
const PROBE = { type: "ssh", command: "if [ -f sick ]; then cat sick; exit 7; fi; echo fine" };
const WEB = { manifest: { health_check: { checks: [PROBE], wait: { attempts: 1, interval_seconds: 1 } } } };

test("CP-983 CP-985 deploys, health checks, drift runs and readings keep how they found allocations and workers", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: WEB });
  const { db } = deploys.bucket;
  let seen = 0;
  /** What has changed since the last look, oldest first. */
  const news = () => {
    const { items } = healthChanges(db, {}, { before: Number.MAX_SAFE_INTEGER, limit: 1_000 });
    const fresh = items.slice(0, items.length - seen).reverse();
    seen = items.length;
    return fresh.map(({ job, worker, aspect, state }) => `${job}@${worker} ${aspect} ${state}`);
  };
  const of = (prefix: string, what: string) => HOSTS.map((host) => `${prefix}@${host} ${what}`);
  assert.equal((await deploys.deploy({ dry_run: true })).error, undefined);
  assert.deepEqual(news(), [], "a dry run finds nothing");
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(news().sort(), of("web", "health healthy").sort(), "a gate");
  await carryOut(deploys.bucket, "health_check", healthCheck, {});
  assert.deepEqual(news().sort(), of("", "reach reachable").sort(), "a health check");
  writeFileSync(path.join(deploys.folder(A), "sick"), "the disk is full\n");
  await carryOut(deploys.bucket, "health_check", healthCheck, {});
  assert.deepEqual(news(), [`web@${A} health unhealthy`]);
  const [newest] = healthChanges(db, {}, { before: Number.MAX_SAFE_INTEGER, limit: 1 }).items;
  assert.match(newest?.reason ?? "", /the disk is full/);
  rmSync(path.join(deploys.folder(A), "sick"));
  await carryOut(deploys.bucket, "drift", drift, {});
  assert.deepEqual(news().sort(), of("web", "files in_sync").sort(), "a drift run");
  writeFileSync(path.join(deploys.folder(A), "jobs", "web", "Makefile"), "changed:\n");
  await carryOut(deploys.bucket, "drift", drift, {});
  assert.deepEqual(news(), [`web@${A} files drifted`]);
  assert.equal((await deploys.deploy({ force: true })).error, undefined);
  assert.ok(news().includes(`web@${A} files in_sync`), "a deploy puts the promoted file back");
  for (const host of HOSTS) storeFacts(db, host, { cpu_count: 1_000 });
  await carryOut(deploys.bucket, "worker_uptime", uptime, {});
  assert.deepEqual(news().sort(), of("", "load normal").sort(), "a reading");
});
