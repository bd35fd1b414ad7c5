import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { Failure } from "../../../lib/core/errors.ts";
import { control } from "../../../lib/operation/control/job-control.ts";
import type { DeployResult } from "../../../lib/operation/deploy/deploy-result.ts";
import { type Deployed, Deploys, HOSTS } from "../../helpers/deploys.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };
/** A restart that stops the service, waits while there is a file `hold`, and then starts the service or fails to. */
const MAKEFILE = `start stop reload:
	@mkdir -p data; echo $@ >> data/history; [ ! -f ../../fail-web-$@ ]
restart:
	@$(MAKE) stop; touch ../../stopped; while [ -f ../../hold ]; do sleep 0.1; done; $(MAKE) start
`;
const DOWN = `web@${B}: may be stopped, not started again: \`make restart\` did not succeed`;

const leftBy = ({ result }: Deployed) => (result as DeployResult).left_down;
const jobs = (text: string, manifest = {}) => ({
  web: { manifest: { max_concurrent_upgrades: 2, ...manifest }, files: { Makefile: MAKEFILE, a: text } },
});

async function running(t: Parameters<typeof Deploys.make>[0], manifest = {}): Promise<Deploys> {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs("1", manifest), TWO);
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs("2", manifest), TWO);
  return deploys;
}

test("a batch that failed says where a service was left down, until that service is started", async (t) => {
  const deploys = await running(t);
  const heal = deploys.fail("web", "start", B);
  const run = await deploys.deploy();
  assert.deepEqual(leftBy(run), [DOWN]);
  assert.ok(run.error?.message.endsWith(`; ${DOWN}`), run.error?.message);
  assert.ok(run.text.includes(`warning: ${DOWN}`), run.text);
  heal();
  const next = await deploys.deploy();
  assert.deepEqual([next.error, leftBy(next)], [undefined, undefined]);
});

test("a cancelled deploy says where a service was left down", async (t) => {
  const deploys = await running(t);
  writeFileSync(path.join(deploys.folder(B), "hold"), "");
  const stop = new AbortController();
  const deploying = deploys.deploy({}, stop.signal);
  await until("the service to be stopped", () => existsSync(path.join(deploys.folder(B), "stopped")));
  await until("the other to be started", () => deploys.targets("web", A).length === 3);
  stop.abort();
  const run = await deploying;
  assert.equal(run.error?.code, "cancelled");
  assert.ok(leftBy(run)?.includes(DOWN), JSON.stringify(leftBy(run)));
});

test("a service that was put back and started again is not told as left down", async (t) => {
  const sick = { checks: [{ type: "ssh", command: "grep -q 1 jobs/web/a" }], wait: { attempts: 1 } };
  const deploys = await running(t, { health_check: sick, on_failure: "restore" });
  const run = await deploys.deploy();
  assert.match(run.error?.message ?? "", /was put back on .+ and is healthy there/);
  assert.equal(leftBy(run), undefined);
});

test("a service that an earlier deploy stopped and this one could not start is told as left down", async (t) => {
  const deploys = await running(t);
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs("2"), { ...TWO, disabled: { web: [B] } });
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs("2"), TWO);
  const heal = deploys.fail("web", "start", B);
  const run = await deploys.deploy();
  assert.deepEqual(leftBy(run), [`web@${B}: not started again`]);
  heal();
  assert.equal(leftBy(await deploys.deploy()), undefined);
});

test("what several services have in common is told once in the error", async (t) => {
  const deploys = await running(t);
  const context = deploys.bucket.context("job_stop");
  await control("job_stop")(context, { jobs: ["web"], forget: true });
  context.log.close();
  for (const host of [A, B]) deploys.fail("web", "start", host);
  const run = await deploys.deploy();
  assert.deepEqual(leftBy(run), [`web@${A}: not started again`, `web@${B}: not started again`]);
  assert.ok(run.error?.message.endsWith(`; web@${A}, web@${B}: not started again`), run.error?.message);
});

test("job control tells where its restart left a service down, and not where the restart could not begin", async (t) => {
  const deploys = await running(t);
  assert.equal((await deploys.deploy()).error, undefined);
  const restart = async () => {
    const context = deploys.bucket.context("job_restart");
    try {
      await control("job_restart")(context, { jobs: ["web"] });
    } catch (error) {
      return error as Failure;
    } finally {
      context.log.close();
    }
    return undefined;
  };
  const left = (failure: Failure | undefined) => (failure?.details as { left_down?: string[] } | undefined)?.left_down;
  const heal = deploys.fail("web", "start", B);
  const failure = await restart();
  assert.deepEqual(left(failure), [DOWN]);
  assert.ok(failure?.message.endsWith(`; ${DOWN}`), failure?.message);
  heal();
  const back = await deploys.cutOff(B);
  assert.equal(left(await restart()), undefined);
  back();
  assert.equal(await restart(), undefined);
});
