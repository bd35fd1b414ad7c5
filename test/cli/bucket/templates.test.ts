// The templates of ops: what `job create --template` makes is built and brought to a worker as it stands.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { parseYaml } from "../../../lib/codec/config/yaml.ts";
import { signalProcess } from "../../../lib/core/process.ts";
import { freePorts } from "../../../scripts/example.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { processesIn } from "../../helpers/worker.ts";

/** A bucket with a worker, this machine, and a job `my-<template>` of a template; nothing is deployed yet. */
async function bucketWith(t: TestContext, template: string) {
  const dir = temporaryFolder(t);
  const layout = layoutOf(path.join(dir, "bucket"));
  const root = path.join(dir, "worker");
  t.after(() => processesIn(root).forEach((pid) => void signalProcess(pid, "SIGKILL")));
  const run = (...args: string[]) => ops([...args, "--bucket-dir", layout.root]);
  const done = async (...args: string[]) => {
    const ended = await run(...args);
    assert.equal(ended.code, 0, `${args.join(" ")}: ${ended.stderr}${ended.stdout}`);
    return ended.stdout;
  };
  mkdirSync(layout.root);
  await done("init");
  writeFileSync(layout.workersJson, JSON.stringify([{ host: "127.0.0.1", connection: "local", root }]));
  writeFileSync(path.join(layout.root, "ops.conf"), "use_sudo = false\n");
  const port = await freePorts(["127.0.0.1"], 1);
  writeFileSync(layout.bucketConf, `port_min = ${port}\nport_max = ${port}\n`);
  await done("job", "create", `my-${template}`, "--template", template, "-s", "worker");
  await done("build");
  return { run, done, root, port };
}

/** The job's folder as it lies on the worker before anything is started there. */
async function synced(t: TestContext, template: string) {
  const { run, root, port } = await bucketWith(t, template);
  // Fails, because a job that was never started cannot be synced only; but first it brings the files.
  assert.match((await run("deploy", "--sync-only")).stderr, /was never started on 127\.0\.0\.1/);
  const folder = path.join(root, readdirSync(root)[0] ?? "", "jobs", `my-${template}`);
  return { folder, port, read: (file: string) => readFileSync(path.join(folder, file), "utf8") };
}

/** What make would run for a target. */
function planned(folder: string, target: string, ...variables: string[]): string {
  const made = spawnSync("make", ["-n", "-s", "-C", folder, target, ...variables], { encoding: "utf8" });
  assert.deepEqual([made.status, made.stderr], [0, ""], target);
  return made.stdout;
}

test("a job of the template `service` runs as it was made: deploy, HTTP, status, restart, drift, stop", async (t) => {
  const { done, root, port } = await bucketWith(t, "service");
  await done("deploy");
  assert.match(await (await fetch(`http://127.0.0.1:${port}/`)).text(), /<p>my-service works on 127/);
  assert.match(await done("job", "status", "my-service"), /running, pid \d+/);
  await done("job", "restart", "my-service");
  assert.match(await done("logs", "my-service", "--tail", "1"), /\S/);
  await done("drift");
  await done("job", "stop", "my-service");
  assert.deepEqual(processesIn(root), []);
});

test("a job of the template `systemd` has a unit that systemd accepts, of the system or of the user", async (t) => {
  const { folder, port, read } = await synced(t, "systemd");
  const unit = path.join(folder, "unit.service");
  const verified = spawnSync("systemd-analyze", ["verify", "--man=no", unit], { encoding: "utf8" });
  // Other units of the machine may have faults of their own.
  const faults = `${verified.stdout}${verified.stderr}`.split("\n").filter((line) => line.includes("unit.service"));
  assert.deepEqual([verified.error, verified.status, faults], [undefined, 0, []]);
  assert.match(read("unit.service"), new RegExp(`^WorkingDirectory=${folder}$`, "m"));
  assert.match(read("unit.service"), new RegExp(`^ExecStart=.* --bind 127\\.0\\.0\\.1 .* ${port}$`, "m"));
  const name = /^UNIT := (my-systemd-[0-9a-f-]{36}\.service)$/m.exec(read("Makefile"))?.[1] ?? "";
  for (const target of ["start", "restart", "reload"]) {
    const lines = planned(folder, target, "SYSTEMCTL=systemctl", "UNITS=/units");
    const verb = target === "reload" ? "reload-or-restart" : target === "start" ? "--quiet enable --now" : target;
    assert.match(lines, new RegExp(`install -m 0644 unit.service /units/${name}\n[^]*systemctl ${verb} ${name}\n$`));
  }
  assert.match(planned(folder, "stop", "UNITS=/units"), new RegExp(`disable --now ${name}\nrm -f /units/${name}\n`));
  const mode = process.getuid?.() === 0 ? "systemctl" : "systemctl --user";
  assert.equal(planned(folder, "status"), `${mode} is-active ${name}\n`);
  const journal = `${mode.replace("systemctl", "journalctl")} --quiet --no-pager --unit ${name} --lines`;
  assert.match(planned(folder, "logs", "TAIL=5", "FOLLOW=1"), new RegExp(`^${journal} 5 --follow\n$`));
});

test("a job of the template `compose` has a file for Docker Compose and a Makefile that uses it", async (t) => {
  const { folder, port, read } = await synced(t, "compose");
  const { services } = parseYaml(read("compose.yaml")) as { services: Record<string, Record<string, unknown>> };
  assert.deepEqual(Object.keys(services), ["my-compose"]);
  assert.deepEqual(services["my-compose"]?.ports, [`127.0.0.1:${port}:80`]);
  assert.deepEqual(services["my-compose"]?.volumes, ["./public:/usr/share/nginx/html:ro"]);
  const project = /--project-name my-compose-[0-9a-f-]{36} /;
  const words = { start: "up --detach --wait", stop: "down", restart: "--force-recreate", reload: "up --detach", status: "ps" };
  for (const [target, word] of Object.entries(words)) {
    assert.match(planned(folder, target), project);
    assert.ok(planned(folder, target).includes(word), target);
  }
  assert.match(planned(folder, "logs", "TAIL=5", "FOLLOW="), / logs --no-color --tail 5 *\n$/);
  // Where Docker Compose is there, it has the last word.
  if (spawnSync("docker", ["compose", "version"]).status !== 0) return;
  const config = spawnSync("docker", ["compose", "config", "--quiet"], { cwd: folder, encoding: "utf8" });
  assert.deepEqual([config.status, config.stderr], [0, ""]);
});
