import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { largeContents } from "../../../lib/bucket/base/database.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { drift } from "../../../lib/operation/plan/drift.ts";
import { collectGarbage } from "../../../lib/operation/tend/gc.ts";
import { Deploys } from "../../helpers/deploys.ts";
import { carryOut } from "../../helpers/operations.ts";

const [HOST, OTHER] = ["127.0.0.1", "127.0.0.2"] as const;
const HOSTS = [HOST, OTHER];
const large = (word: string) => `${word} `.repeat(300_000);
/** The second version is sick. */
const CHECK = { type: "ssh", command: "! grep -q '^two' jobs/web/large" };
const manifest = (version: string) => ({
  version,
  on_failure: "restore",
  health_check: { checks: [CHECK], wait: { attempts: 1, interval_seconds: 1 } },
});

test("CP-352 large files are deployed, compared, put back after a failed gate and collected like small ones", async (t) => {
  const deploys = await Deploys.make(t);
  const { db, layout } = deploys.bucket;
  const conf = { "conf.tpl": `{{ .Job }} {{ printf "%700000d" 1 }}{{ printf "%700000d" 1 }}` };
  const deployed = async (version: string, word: string) => {
    await deploys.build(
      { web: { manifest: manifest(version), files: { large: large(word), small: word, ...conf } } },
      { hosts: HOSTS },
    );
    return (await deploys.deploy()).error?.message;
  };
  const on = (host: string, name: string) => readFileSync(path.join(deploys.folder(host), "jobs/web", name), "utf8");
  assert.equal(await deployed("1.0.0", "one"), undefined);
  assert.deepEqual(
    HOSTS.map((host) => on(host, "large")),
    [large("one"), large("one")],
  );
  assert.equal(on(HOST, "conf").length, "web ".length + 1_400_000);
  const staged = path.join(layout.stagedWorkers, HOST, "jobs/web/large");
  assert.deepEqual([readFileSync(staged, "utf8") === large("one"), statSync(staged).mode & 0o777], [true, 0o600]);
  assert.equal(readdirSync(db.contents).length, 2, "each content is there once");
  writeFileSync(path.join(deploys.folder(HOST), "jobs/web/large"), "by hand");
  const found = (await carryOut(deploys.bucket, "drift", drift, {}, {})) as { result?: unknown };
  assert.match(JSON.stringify(found), /"path":"large","state":"changed"[^}]*"diff":null/);
  assert.match((await deployed("2.0.0", "two")) ?? "", /what was promoted before was put back/);
  assert.deepEqual(
    HOSTS.map((host) => [on(host, "large") === large("one"), on(host, "small")]),
    [
      [true, "one"],
      [true, "one"],
    ],
  );
  assert.equal(await deployed("3.0.0", "three"), undefined);
  assert.equal(await deployed("4.0.0", "four"), undefined);
  await carryOut(deploys.bucket, "gc", collectGarbage, {}, {});
  assert.deepEqual(readdirSync(db.contents).sort(), [...largeContents(db)].sort());
  assert.equal(readdirSync(db.contents).length, 3, "the template's, and the files of the last two trees");
});

test("a large file that is lost on the control host fails the deploy in a sentence, and a build brings it back", async (t) => {
  const deploys = await Deploys.make(t);
  const { db } = deploys.bucket;
  const spec = { web: { files: { large: large("one") } } };
  await deploys.build(spec, { hosts: [HOST] });
  const [name = ""] = readdirSync(db.contents);
  const place = path.join(db.contents, name);
  rmSync(place);
  const { jobs } = await deploys.deploy();
  assert.match(jobs[0]?.allocations[0]?.error ?? "", /Cannot read .*: it is not there with 1200000 bytes; build again/);
  await build(deploys.bucket.context("build"), {});
  assert.equal((await deploys.deploy()).error, undefined);
  const written = statSync(place).ino;
  await build(deploys.bucket.context("build"), {});
  assert.equal(statSync(place).ino, written, "a build writes no content that is there");
});
