import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, cpSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { carryOutMigration, planMigration } from "../../../lib/bucket/earlier/migration.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { blocksOf } from "../../../scripts/page.ts";
import { ops } from "../../helpers/command-line.ts";
import { EarlierAuthority } from "../../helpers/earlier.ts";
import { plays } from "../../helpers/pages.ts";
import { seeded } from "../../helpers/random.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const ID = "6b0f5a3c-7d1e-4b52-9c55-0d6f0f1f2a3b";
const STORE = "workspace/jobs/store";
const APP = "workspace/jobs/app";
const MAKEFILE = "start stop restart:\n\t@mkdir -p data && echo $@ >> data/history\n";
const ORDER = `import maand
workers = maand.get_kv_value("maand/job/app", "workers")
maand.put_deploy_order(workers.split(","))
maand.kv_put("index", maand.get_allocation_index())
`;
const SHOWN = `port {{ get "maand" "store_tcp" }}
bucket {{ get "maand/bucket" "bucket_id" }}
index {{ get "vars/job/app" "index" }}
seat {{ get "maand/job/store" "name" }} maand
`;

/** A bucket in the earlier form, with nothing but its source. */
function earlier(t: TestContext, workers: string): string {
  const dir = temporaryFolder(t);
  const order = { order: { executed_on: ["pre_deploy"], demands: { job: "store", command: "check", config: {} } } };
  const store = { version: "1.2", selectors: ["worker"], update_parallel_count: 2, resources: { ports: { store_tcp: {} } } };
  const files: Record<string, string> = {
    "maand.conf": "certs_ttl = 30\n",
    "workspace/workers.json": JSON.stringify([{ host: "127.0.0.1", connection: "local", root: workers }]),
    [`${STORE}/manifest.json`]: JSON.stringify({ ...store, commands: { check: { executed_on: ["cli"] } } }),
    [`${STORE}/Makefile`]: MAKEFILE,
    [`${STORE}/conf.tpl`]: 'port {{ get "ops" "store_tcp" }}\n',
    [`${STORE}/_modules/check.py`]: "import os\nprint('checked', os.environ['JOB'])\n",
    [`${APP}/manifest.json`]: JSON.stringify(
      { version: "1.0", selectors: ["worker"], deploy_parallel_count: 1, commands: order },
      null,
      2,
    ),
    [`${APP}/Makefile`]: MAKEFILE,
    [`${APP}/app.conf.tpl`]: SHOWN,
    [`${APP}/README.md`]: "Runs with maand.\n",
    [`${APP}/_modules/order.py`]: ORDER,
  };
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    writeFileSync(path.join(dir, file), text);
  }
  return dir;
}

/** Every file below a folder, with its mode and text. */
function treeOf(dir: string): string[] {
  const files = readdirSync(dir, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  const names = files.map((one) => path.join(one.parentPath, one.name)).sort();
  return names.map((name) => `${path.relative(dir, name)} ${statSync(name).mode} ${readFileSync(name, "utf8")}`);
}

async function works(dir: string, ...args: string[]) {
  const ended = await ops([...args, "--bucket-dir", dir]);
  assert.equal(ended.code, 0, ended.stderr);
  return ended;
}

/** What a build made of a bucket, but for ids and files. */
function catalogOf(dir: string) {
  using db = openDatabase(layoutOf(dir).database);
  return ["allocations ORDER BY job", "job ORDER BY name", "hooks ORDER BY job, name", "job_ports ORDER BY job", "job_selectors"]
    .flatMap((rows) => db.all(`SELECT * FROM ${rows}`))
    .map(({ alloc_id: _, job_id: __, ...row }) => row);
}

function filesOf(dir: string): Map<string, string> {
  using db = openDatabase(layoutOf(dir).database);
  const rows = db.all<{ job: string; path: string; content: Uint8Array }>(
    "SELECT job, path, content FROM job_files ORDER BY job, path",
  );
  return new Map(rows.map(({ job, path: file, content }) => [`${job}/${file}`, Buffer.from(content).toString()]));
}

test("ops migrate --json names each file that changes and each line for a person, and says whether they were written", async (t) => {
  const dir = earlier(t, temporaryFolder(t));
  const { code, stdout } = await ops(["migrate", dir, "--json"]);
  const { written, edits, renames, looks } = JSON.parse(stdout);
  assert.deepEqual([code, written], [0, false]);
  assert.ok(edits.includes(`${STORE}/manifest.json`), stdout);
  assert.ok(JSON.stringify(renames).includes("_modules"), stdout);
  assert.deepEqual(Object.keys(looks[0]), ["file", "line", "message"]);
  assert.equal(JSON.parse((await ops(["migrate", dir, "--json", "--write"])).stdout).written, true);
  assert.deepEqual(JSON.parse((await ops(["migrate", dir, "--json"])).stdout).edits, []);
});

test("a migrated workspace builds to the same catalog, and its files differ in the renamed names only", async (t) => {
  const workers = temporaryFolder(t);
  const [before, after] = [earlier(t, workers), temporaryFolder(t)];
  cpSync(before, after, { recursive: true });
  await works(before, "init");
  assert.match((await works(before, "build")).stdout, /_modules: is an older name of _hooks/);
  const source = treeOf(after);
  const planned = await ops(["migrate", after]);
  assert.deepEqual([planned.code, treeOf(after)], [0, source], "without --write nothing changes");
  const written = await ops(["migrate", after, "--write"]);
  assert.equal(written.stdout, planned.stdout);
  assert.match(written.stdout, /^-maand\.put_deploy_order\(workers/m);
  assert.match(written.stdout, /^\+ops\.put_rollout_order\(workers/m);
  assert.match(written.stdout, /^workspace\/jobs\/app\/README\.md:1: "maand" stays/m);
  assert.match(written.stderr, /^changed: 5 edits, 3 renames\nto look at: 2 lines\n$/);
  const tree = treeOf(after);
  const again = await ops(["migrate", after, "--write"]);
  assert.match(again.stderr, /^nothing to change\n/);
  assert.deepEqual(treeOf(after), tree);
  await works(after, "init", "--id", ID);
  assert.doesNotMatch((await works(after, "build")).stdout, /warning/);
  assert.deepEqual(catalogOf(after), catalogOf(before));
  const [old, now] = [filesOf(before), filesOf(after)];
  assert.deepEqual([...now.keys()], [...old.keys()]);
  const changed = [...now].filter(([name, text]) => old.get(name) !== text).map(([name]) => name);
  const renamed = ["app/_hooks/order.py", "app/app.conf.tpl", "app/manifest.json", "store/conf.tpl", "store/manifest.json"];
  assert.deepEqual(changed, renamed);
  await works(after, "deploy");
  await works(before, "deploy", "--jobs", "store");
  const shown = (dir: string, file: string) => {
    using db = openDatabase(layoutOf(dir).database);
    const id = db.get<{ bucket_id: string }>("SELECT bucket_id FROM bucket")?.bucket_id ?? "";
    return readFileSync(path.join(workers, id, "jobs", file), "utf8");
  };
  assert.equal(shown(after, "store/conf"), shown(before, "store/conf"), "what could be rendered before is the same");
  assert.equal(shown(after, "app/app.conf"), `port 30000\nbucket ${ID}\nindex 0\nseat store maand\n`);
});

/** What the earlier system has put on its worker, and what runs there; answers what tells that nobody touched a service. */
function earlierWorker(t: TestContext, dir: string, workers: string): () => unknown {
  const authority = new EarlierAuthority(t);
  const rendered: Record<string, string> = {
    "store/conf": "port 30000\n",
    "app/app.conf": `port 30000\nbucket ${ID}\nindex ada\nseat store maand\n`,
    "app/README.md": "Runs with maand.\n",
  };
  const jobs = path.join(workers, ID, "jobs");
  for (const job of ["app", "store"]) {
    mkdirSync(path.join(jobs, job, "data"), { recursive: true });
    writeFileSync(path.join(jobs, job, "data", "history"), "start\n");
    for (const name of ["Makefile", "manifest.json"])
      cpSync(path.join(dir, "workspace/jobs", job, name), path.join(jobs, job, name));
  }
  for (const [file, text] of Object.entries(rendered)) writeFileSync(path.join(jobs, file), text, { mode: 0o755 });
  authority.put(path.join(jobs, "app"), "server", authority.issue("app", "IP:127.0.0.1"));
  authority.put(path.join(jobs, "store"), "none", authority.issue("none", "IP:127.0.0.1"));
  writeFileSync(path.join(workers, ID, "worker.json"), '{"worker_id": "9a0364b9e99bb480dd25e1f0284c8555", "update_seq": 41}\n');
  mkdirSync(path.join(dir, "secrets"));
  writeFileSync(path.join(dir, "secrets", "ca.crt"), authority.certificate);
  writeFileSync(path.join(dir, "secrets", "ca.key"), authority.key);
  const isOfService = (file: string) => !/manifest\.json \d+ /.test(file);
  return () => treeOf(jobs).filter(isOfService);
}

test("docs/migrate.md: every command does what the page says, and what ran before is taken over as it is", async (t) => {
  const folder = temporaryFolder(t);
  const page = blocksOf(path.join(PROGRAM_ROOT, "docs", "migrate.md"));
  const workers = path.join(folder, "workers");
  const dir = earlier(t, workers);
  const manifest = path.join(dir, APP, "manifest.json");
  const certs = { server: { subject: { common_name: "app" } } };
  writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest, "utf8")), certs }));
  writeFileSync(path.join(dir, APP, "app.conf.tpl"), SHOWN.replace('"index"', '"owner"'));
  const services = earlierWorker(t, dir, workers);
  const before = services();
  await plays(folder, page, `export EARLIER=${dir} BUCKET_ID=${ID} JOB=app\n`);
  assert.deepEqual(services(), before);
  const shop = path.join(folder, "home", "shop");
  const { stdout } = await works(shop, "cat", "deployments", "--json");
  const items = JSON.parse(stdout) as { job: string; rollout: string; last_action: string }[];
  assert.deepEqual(
    items.map(({ job, rollout, last_action }) => [job, rollout, last_action]),
    [
      ["app", "promoted", "adopt"],
      ["store", "promoted", "adopt"],
    ],
  );
  assert.match((await works(shop, "deploy")).stdout, /jobs: 0 deployed, 2 skipped/);
});

test("a migration that is killed at any moment leaves whole files and no other ones", async (t) => {
  const random = seeded();
  const [dir, whole] = [earlier(t, "/srv"), earlier(t, "/srv")];
  const files = Array.from({ length: 300 }, (_, index) => `${APP}/conf/${index}.tpl`);
  for (const one of [dir, whole]) {
    mkdirSync(path.join(one, APP, "conf"));
    for (const file of files) writeFileSync(path.join(one, file), '{{ get "maand/bucket" "x" }}\n');
  }
  const own = (one: string) => treeOf(path.join(one, "workspace")).filter((file) => !/^\.+ops-edit\.tmp/.test(file));
  const sources = (one: string) => own(one).map((file) => file.replaceAll("_modules", "_hooks"));
  const before = sources(dir);
  assert.equal((await ops(["migrate", whole, "--write"])).code, 0);
  const after = sources(whole);
  const count = () => files.filter((file) => readFileSync(path.join(dir, file), "utf8").includes("ops/bucket")).length;
  let cut = 0;
  for (let round = 0; round < 20 && sources(dir).join() !== after.join(); round++) {
    const started = count();
    const child = spawn(process.execPath, [PROGRAM, "migrate", dir, "--write"], { stdio: "ignore" });
    const closed = once(child, "close");
    const most = started + 1 + Math.floor(random() * 100);
    await until("files are changed", () => child.exitCode !== null || count() >= most);
    child.kill("SIGKILL");
    await closed;
    const now = sources(dir);
    if (now.join() !== after.join()) cut++;
    for (const [index, file] of now.entries()) assert.ok([before[index], after[index]].includes(file), file);
    assert.equal(now.length, before.length);
  }
  assert.ok(cut > 0, "at least one was cut");
  assert.equal((await ops(["migrate", dir, "--write"])).code, 0);
  assert.deepEqual(treeOf(dir), treeOf(whole), "nothing is left of what was cut");
});

test("a migration that is killed between two files leaves each whole, and the next one does the rest", async (t) => {
  const [dir, whole] = [earlier(t, "/srv"), earlier(t, "/srv")];
  const plan = await planMigration(layoutOf(dir));
  for (const done of [1, 3, plan.edits.length]) {
    await carryOutMigration(layoutOf(dir), { ...plan, edits: plan.edits.slice(0, done), renames: [] });
    assert.equal((await planMigration(layoutOf(dir))).edits.length, plan.edits.length - done);
  }
  await carryOutMigration(layoutOf(dir), { edits: [], renames: plan.renames.slice(0, 1), looks: [] });
  await carryOutMigration(layoutOf(dir), await planMigration(layoutOf(dir)));
  await carryOutMigration(layoutOf(whole), await planMigration(layoutOf(whole)));
  assert.deepEqual(treeOf(dir), treeOf(whole));
});

test("a file is written below its own mount, keeps its owner, and nothing is left where it cannot be written", async (t) => {
  const dir = earlier(t, "/srv");
  const isRoot = process.getuid?.() === 0;
  const file = path.join(dir, STORE, "conf.tpl");
  if (isRoot) chownSync(file, 1234, 2345);
  const owner = statSync(file);
  // Where the bucket's folder itself is used, the file cannot take this name.
  mkdirSync(path.join(dir, ".ops-edit.tmp", "taken"), { recursive: true });
  const plan = await planMigration(layoutOf(dir));
  const edits = plan.edits.filter((one) => one.file.startsWith("workspace/"));
  await carryOutMigration(layoutOf(dir), { edits, renames: [], looks: [] });
  assert.match(readFileSync(file, "utf8"), /get "ops\/bucket"/);
  assert.deepEqual([statSync(file).uid, statSync(file).gid], [owner.uid, owner.gid]);
  const wrong = [{ file: `${STORE}/_modules`, before: "", after: "x", mode: 0o644 }];
  await assert.rejects(carryOutMigration(layoutOf(dir), { edits: wrong, renames: [], looks: [] }), { code: /EISDIR|ENOTEMPTY/ });
  assert.ok(!readdirSync(path.join(dir, "workspace")).some((name) => name.includes("ops-edit")));
});

test("migrate names what it leaves alone: both folders, both files, a copied helper, links, files that are no text", async (t) => {
  const dir = earlier(t, "/srv");
  const write = (file: string, content: string | Buffer) => writeFileSync(path.join(dir, file), content);
  mkdirSync(path.join(dir, STORE, "_hooks"));
  mkdirSync(path.join(dir, "data"));
  write("ops.conf", "");
  write("data/maand.db", "");
  write(`${APP}/_modules/maand.py`, "import maand\n");
  write(`${APP}/blob`, Buffer.from("\0maand"));
  write(`${APP}/large`, Buffer.alloc(1024 * 1024 + 1, "maand "));
  symlinkSync("Makefile", path.join(dir, APP, "link"));
  symlinkSync("../../elsewhere", path.join(dir, "workspace", "jobs", "linked"));
  mkdirSync(path.join(dir, "elsewhere", "_modules"), { recursive: true });
  write("elsewhere/_modules/check.py", "");
  const { looks, renames, edits } = await planMigration(layoutOf(dir));
  const told = looks.map(({ file, line }) => `${file}:${line}`).sort();
  assert.deepEqual(told, [
    ...["data/maand.db:1", "maand.conf:1", `${APP}/README.md:1`, `${APP}/_modules/maand.py:1`, `${APP}/app.conf.tpl:4`],
    ...[`${APP}/blob:1`, `${APP}/large:1`, `${APP}/link:1`, "workspace/jobs/linked:1", `${STORE}/_modules:1`],
  ]);
  assert.deepEqual(renames, [{ from: `${APP}/_modules`, to: `${APP}/_hooks` }]);
  assert.ok(!edits.some(({ file }) => file.endsWith("maand.py")));
});

test("migrate refuses a folder without a workspace, and --write with --dry-run", async (t) => {
  const none = await ops(["migrate", temporaryFolder(t)]);
  assert.deepEqual([none.code, none.stdout], [1, ""]);
  assert.match(none.stderr, /^ops: Cannot migrate .*: it has no folder workspace\/; name the folder of the bucket\n$/);
  assert.equal((await ops(["migrate", "--write", "--dry-run"])).code, 2);
});

test("ops job_command takes job and hook in either order, and ops cat job_ports shows ports, each with a note", async (t) => {
  const dir = earlier(t, temporaryFolder(t));
  await carryOutMigration(layoutOf(dir), await planMigration(layoutOf(dir)));
  await works(dir, "init");
  await works(dir, "build");
  for (const words of [["check", "store"], ["store", "check"], ["check"]]) {
    const { stdout, stderr } = await works(dir, "job_command", ...words);
    assert.match(stdout, /checked store/);
    assert.equal(stderr, "ops: note: `ops job_command` is an older spelling of `ops hooks`\n");
  }
  const { stdout, stderr } = await works(dir, "cat", "job_ports");
  assert.equal(stdout, (await works(dir, "cat", "ports")).stdout);
  assert.equal(stderr, "ops: note: `ops cat job_ports` is an older spelling of `ops cat ports`\n");
});

test("ops init --id makes the bucket with that id, and refuses another one later and what is no id", async (t) => {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--id", "nope", "--bucket-dir", dir])).code, 1);
  assert.match((await works(dir, "init", "--id", ID)).stdout, new RegExp(`^bucket ${ID} `));
  await works(dir, "init", "--id", ID);
  const other = await ops(["init", "--id", ID.replace("6", "7"), "--bucket-dir", dir]);
  assert.equal(other.code, 1);
  assert.match(other.stderr, new RegExp(`belongs to bucket ${ID}, not 7`));
});
