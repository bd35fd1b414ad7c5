import assert from "node:assert/strict";
import { chmodSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { createKvKey, loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { textOfValue } from "../../../lib/bucket/kv/kv-rows.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { unseal } from "../../../lib/codec/crypto/seal.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const DAY_MS = 86_400_000;

/** A bucket's database with a clock that the test sets, in milliseconds. */
async function bucket(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  const db = openDatabase(layout.database);
  t.after(() => db.close());
  const key = await loadKvKey(layout);
  const clock = { now: 1_000_000_000_000 };
  const store = () => new KvStore(db, key, () => clock.now);
  const rows = (namespace = "n") =>
    db
      .all("SELECT key, version, value, ttl, deleted FROM key_value WHERE namespace = ? ORDER BY key, version", namespace)
      .map((row) => `${row.key} ${row.version} ${row.deleted ? "deleted" : row.value}${row.ttl ? ` ${row.ttl}s` : ""}`);
  return { layout, db, key, clock, store, rows };
}

test("T-101 a write is visible at once to the same store, and stored by flush only", async (t) => {
  const { store } = await bucket(t);
  const kv = store();
  kv.put("n", "a", " kept as given\n");
  assert.equal(kv.get("n", "a"), " kept as given\n");
  assert.equal(store().get("n", "a"), undefined);
  kv.flush();
  assert.equal(store().get("n", "a"), " kept as given\n");
});

test("discard drops what was not flushed", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "1");
  kv.flush();
  kv.put("n", "a", "2");
  kv.delete("n", "b");
  kv.discard();
  kv.flush();
  assert.equal(kv.get("n", "a"), "1");
  assert.deepEqual(rows(), ["a 1 1"]);
});

test("flush and discard of one job leave what belongs to others pending", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  const write = () => {
    for (const job of ["a", "ab", "b"])
      for (const namespace of [`vars/job/${job}`, `secrets/job/${job}`, `ops/job/${job}`]) kv.put(namespace, "k", job);
    kv.put("ops/job/a/worker/10.0.0.1", "k", "w");
    kv.put("ops/bucket", "k", "bucket");
  };
  write();
  kv.flush("a");
  assert.deepEqual([store().get("vars/job/a", "k"), store().get("ops/job/a/worker/10.0.0.1", "k")], ["a", "w"]);
  assert.deepEqual([rows("vars/job/ab"), rows("secrets/job/b"), rows("ops/bucket")], [[], [], []]);
  kv.put("vars/job/a", "k", "changed");
  kv.discard("b");
  assert.deepEqual(
    ["a", "ab", "b"].map((job) => kv.get(`vars/job/${job}`, "k")),
    ["changed", "ab", undefined],
  );
  kv.discard("a");
  assert.equal(kv.get("vars/job/a", "k"), "a");
  kv.flush();
  assert.deepEqual([rows("vars/job/a"), rows("vars/job/ab"), rows("vars/job/b")], [["k 1 a"], ["k 1 ab"], []]);
  assert.deepEqual(rows("ops/bucket"), ["k 1 bucket"]);
});

test("a key starts at version 1; changes, deletes and writes after deletes count up; nothing else does", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  const write = (change: () => void) => {
    change();
    kv.flush();
  };
  write(() => kv.put("n", "a", "x"));
  write(() => kv.put("n", "a", "x"));
  assert.deepEqual(rows(), ["a 1 x"]);
  write(() => kv.put("n", "a", "y"));
  write(() => kv.put("n", "a", "y", 60));
  write(() => kv.delete("n", "a"));
  write(() => kv.delete("n", "a"));
  write(() => kv.delete("n", "never"));
  write(() => kv.put("n", "a", "y"));
  assert.deepEqual(rows(), ["a 1 x", "a 2 y", "a 3 y 60s", "a 4 deleted", "a 5 y"]);
});

test("several writes of a key between two flushes are one row", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "1");
  kv.put("n", "a", "2");
  kv.delete("n", "b");
  kv.put("n", "b", "3");
  kv.flush();
  assert.deepEqual(rows(), ["a 1 2", "b 1 3"]);
});

test("flush takes part in an open transaction: rolled back, nothing is stored", async (t) => {
  const { store, db, rows } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "1");
  assert.throws(() =>
    db.transaction(() => {
      kv.flush();
      throw new Error("later");
    }),
  );
  kv.discard();
  assert.deepEqual([rows(), kv.get("n", "a")], [[], undefined]);
});

test("a flush that fails stores nothing and keeps what was written", async (t) => {
  const { store, db, rows } = await bucket(t);
  const kv = store();
  db.script("CREATE TRIGGER no BEFORE INSERT ON kv_version WHEN NEW.key = 'b' BEGIN SELECT RAISE(FAIL, 'full'); END");
  kv.put("n", "a", "1");
  kv.put("n", "b", "2");
  assert.throws(() => kv.flush(), /full/);
  assert.deepEqual(rows(), []);
  db.script("DROP TRIGGER no");
  kv.flush();
  assert.deepEqual(rows(), ["a 1 1", "b 1 2"]);
});

test("keys and entries are sorted and leave out what is deleted or expired", async (t) => {
  const { store, clock } = await bucket(t);
  const kv = store();
  for (const key of ["b", "a", "gone", "new"]) kv.put("n", key, key);
  kv.put("n", "short", "x", 10);
  kv.flush();
  kv.delete("n", "gone");
  kv.put("n", "c", "pending");
  clock.now += 10_000;
  assert.deepEqual(kv.keys("n"), ["a", "b", "c", "new"]);
  assert.deepEqual(
    [...kv.entries("n")],
    [
      ["a", "a"],
      ["b", "b"],
      ["c", "pending"],
      ["new", "new"],
    ],
  );
  assert.deepEqual(kv.keys("other"), []);
});

test("sync makes a namespace equal: stale keys become tombstones, equal ones stay as they are", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  kv.sync(
    "n",
    new Map([
      ["a", "1"],
      ["b", "2"],
      ["c", "3"],
    ]),
  );
  kv.flush();
  kv.put("n", "pending", "x");
  kv.sync(
    "n",
    new Map([
      ["a", "1"],
      ["b", "changed"],
    ]),
  );
  assert.deepEqual(kv.keys("n"), ["a", "b"]);
  kv.flush();
  assert.deepEqual(rows(), ["a 1 1", "b 1 2", "b 2 changed", "c 1 3", "c 2 deleted"]);
});

test("namespaces lists those that hold a key, pending ones too", async (t) => {
  const { store } = await bucket(t);
  const kv = store();
  kv.put("stored", "a", "1");
  kv.put("emptied", "a", "1");
  kv.flush();
  const other = store();
  other.put("pending", "a", "1");
  other.delete("emptied", "a");
  other.delete("never", "a");
  assert.deepEqual(other.namespaces(), ["pending", "stored"]);
});

test("HR-206 an expired key is not found from that moment, and deleteExpired makes it a tombstone", async (t) => {
  const { store, clock, rows } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "x", 2);
  kv.put("n", "forever", "x", 0);
  kv.flush();
  clock.now += 1_999;
  assert.equal(kv.get("n", "a"), "x");
  clock.now += 1;
  assert.equal(kv.get("n", "a"), undefined);
  assert.equal(store().get("n", "a"), undefined);
  const later = store();
  later.deleteExpired();
  later.flush();
  assert.deepEqual(rows(), ["a 1 x 2s", "a 2 deleted", "forever 1 x"]);
});

test("writing the same value with a ttl again starts its time anew", async (t) => {
  const { store, clock } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "x", 10);
  kv.flush();
  clock.now += 9_000;
  kv.put("n", "a", "x", 10);
  kv.deleteExpired();
  kv.flush();
  clock.now += 9_000;
  assert.equal(store().get("n", "a"), "x");
});

test("HR-204 secrets are sealed with AES-256-GCM: neither the database nor its journal has the text", async (t) => {
  const { store, db, layout, key, rows } = await bucket(t);
  const kv = store();
  kv.put("secrets/job/web", "password", "correct horse battery staple\n");
  kv.flush();
  assert.equal(store().get("secrets/job/web", "password"), "correct horse battery staple\n");
  for (const file of readdirSync(layout.data))
    assert.equal(readFileSync(path.join(layout.data, file)).includes("correct horse"), false, file);
  const sealed = db.get<{ value: string }>("SELECT value FROM key_value")?.value ?? "";
  assert.match(sealed, /^enc:v2:/);
  assert.equal(unseal(key, "secrets/job/web", "password", sealed), "correct horse battery staple\n");
  kv.put("secrets/job/web", "password", "correct horse battery staple\n");
  kv.flush();
  assert.equal(rows("secrets/job/web").length, 1);
});

test("HR-205 with another kv.key a secret does not open, and can be replaced", async (t) => {
  const { store, db } = await bucket(t);
  const kv = store();
  kv.put("secrets/job/web", "password", "old secret");
  kv.flush();
  const other = new KvStore(db, Buffer.alloc(32, 7));
  assert.throws(() => other.get("secrets/job/web", "password"), /password.*secrets\/job\/web/);
  assert.deepEqual(other.secrets(), []);
  other.put("secrets/job/web", "password", "new secret");
  other.flush();
  assert.equal(other.get("secrets/job/web", "password"), "new secret");
});

test("secrets answers every secret in clear, stored or not, and nothing else", async (t) => {
  const { store, clock } = await bucket(t);
  const kv = store();
  kv.put("secrets/job/a", "one", "1");
  kv.put("secrets/job/a", "gone", "2");
  kv.put("secrets/job/b", "short", "3", 1);
  kv.put("vars/job/a", "plain", "4");
  kv.flush();
  kv.delete("secrets/job/a", "gone");
  kv.flush();
  kv.put("secrets/job/c", "pending", "5");
  clock.now += 5_000;
  assert.deepEqual(
    kv
      .secrets()
      .map(({ value }) => value)
      .sort(),
    ["1", "3", "5"],
  );
});

test("HR-207 purge removes tombstones of that age with all versions, and leaves younger ones", async (t) => {
  const { store, clock, rows } = await bucket(t);
  const kv = store();
  for (const key of ["old", "young"]) kv.put("n", key, "x");
  kv.flush();
  kv.delete("n", "old");
  kv.flush();
  clock.now += 7 * DAY_MS;
  kv.delete("n", "young");
  kv.flush();
  kv.purge(30);
  assert.equal(rows().length, 4);
  kv.purge(7);
  assert.deepEqual(rows(), ["young 1 x", "young 2 deleted"]);
  kv.purge(0);
  assert.deepEqual(rows(), []);
  kv.put("n", "old", "again");
  kv.flush();
  assert.deepEqual(rows(), ["old 1 again"]);
});

test("what was not read before is read after a purge or a discard, though all of the store was known", async (t) => {
  const { store } = await bucket(t);
  const kv = store();
  for (const name of ["n", "ops/job/web/worker/w"]) for (const key of ["gone", "kept"]) kv.put(name, key, "x");
  kv.flush();
  kv.delete("n", "gone");
  kv.flush();
  for (const forget of [() => kv.purge(0), () => kv.discard()]) {
    assert.deepEqual(kv.namespaces(), ["n"]);
    kv.loadAllocations("web");
    forget();
    assert.deepEqual([kv.get("n", "kept"), kv.get("ops/job/web/worker/w", "kept")], ["x", "x"]);
  }
});

test("purge thins out a key that changes often: old versions go, except the last seven and the newest", async (t) => {
  const { store, clock, rows } = await bucket(t);
  const kv = store();
  for (let day = 1; day <= 20; day++) {
    clock.now += DAY_MS;
    kv.put("n", "hot", `${day}`);
    kv.flush();
  }
  kv.purge(7);
  assert.deepEqual(
    rows().map((row) => row.split(" ")[1]),
    ["13", "14", "15", "16", "17", "18", "19", "20"],
  );
  kv.put("n", "hot", "21");
  kv.flush();
  assert.equal(rows().at(-1), "hot 21 21");
});

test("kv.key is 32 random bytes, readable by its owner only, and never replaced", async (t) => {
  const { layout } = await bucket(t);
  const key = readFileSync(layout.kvKey);
  assert.equal(key.length, 32);
  assert.equal(statSync(layout.kvKey).mode & 0o777, 0o600);
  await createKvKey(layout.kvKey);
  assert.deepEqual(readFileSync(layout.kvKey), key);
});

test("a missing kv.key and one of another length are refused with what to do", async (t) => {
  const { layout } = await bucket(t);
  writeFileSync(layout.kvKey, "short");
  await assert.rejects(loadKvKey(layout), /secrets\/kv\.key: it has 5 bytes instead of 32/);
  chmodSync(layout.kvKey, 0o600);
  rmSync(layout.kvKey);
  await assert.rejects(loadKvKey(layout), { code: "bucket_not_initialized", message: /run `ops init`/ });
});

test("peers are read as the list without the own host, everywhere, and the list is stored once", async (t) => {
  const { store, db, rows } = await bucket(t);
  const hosts = "a,ab,b,::1";
  const peers = { a: "ab,b,::1", ab: "a,b,::1", b: "a,ab,::1", "::1": "a,ab,b" };
  const kv = store();
  for (const without of Object.keys(peers)) kv.put("n", without, { hosts, without });
  kv.put("n", "alone", { hosts: "a", without: "a" });
  assert.deepEqual(Object.fromEntries(kv.entries("n")), { ...peers, alone: "" }, "not stored yet");
  kv.flush();
  const expected = Object.entries({ ...peers, alone: "" })
    .map(([key, value]) => `${key} 1 ${value}`)
    .sort();
  assert.deepEqual(rows().sort(), expected, "in the database");
  const other = store();
  assert.deepEqual(Object.fromEntries(other.entries("n")), { ...peers, alone: "" });
  assert.equal(db.get("SELECT count(*) AS n FROM host_list")?.n, 2);
});

test("peers have a new version when what is read differs, and only then", async (t) => {
  const { store, rows } = await bucket(t);
  const write = (value: string | { hosts: string; without: string }) => {
    const kv = store();
    kv.put("n", "peers", value);
    kv.flush();
  };
  write({ hosts: "a,b,c", without: "c" });
  write({ hosts: "a,b,c", without: "c" });
  write({ hosts: "c,a,b", without: "c" });
  write("a,b");
  assert.deepEqual(rows(), ["peers 1 a,b"]);
  write({ hosts: "a,b,c,d", without: "c" });
  write("d");
  write({ hosts: "d,e", without: "e" });
  assert.deepEqual(rows(), ["peers 1 a,b", "peers 2 a,b,d", "peers 3 d"]);
});

test("a purge drops the lists that no version names any more", async (t) => {
  const { store, db, clock, rows } = await bucket(t);
  const kv = store();
  for (const hosts of ["a,b", "a,c"]) {
    kv.put("n", "gone", { hosts, without: "a" });
    kv.flush();
  }
  kv.put("n", "kept", { hosts: "a,c", without: "c" });
  kv.delete("n", "gone");
  kv.flush();
  clock.now += DAY_MS;
  kv.purge(1);
  assert.deepEqual(
    db.all("SELECT hosts FROM host_list").map((row) => row.hosts),
    ["a,c"],
  );
  assert.deepEqual(rows(), ["kept 1 a"]);
  assert.equal(kv.get("n", "kept"), "a");
});

test("a list whose number is given anew, after a purge or a transaction that was rolled back, is read anew", async (t) => {
  const { store, db, clock } = await bucket(t);
  const kv = store();
  const write = (namespace: string, hosts: string) => {
    const other = store();
    other.put(namespace, "peers", { hosts, without: "a" });
    other.flush();
  };
  assert.throws(() =>
    db.transaction(() => {
      write("n", "a,b");
      assert.equal(kv.get("n", "peers"), "b");
      throw new Error("later");
    }),
  );
  kv.discard();
  write("n", "a,c");
  assert.equal(kv.get("n", "peers"), "c");
  kv.delete("n", "peers");
  kv.flush();
  clock.now += DAY_MS;
  kv.purge(1);
  write("m", "a,d");
  assert.equal(kv.get("m", "peers"), "d");
  assert.equal(db.get("SELECT id FROM host_list")?.id, 1);
});

test("loadAll reads what is stored once; what was written before stays as it was", async (t) => {
  const { store, db } = await bucket(t);
  const first = store();
  for (const namespace of ["a", "b"]) first.put(namespace, "k", "stored");
  first.flush();
  const kv = store();
  kv.put("a", "k", "written");
  kv.delete("b", "k");
  kv.loadAll();
  db.run("DELETE FROM kv_version");
  assert.equal(kv.get("a", "k"), "written");
  assert.equal(kv.get("b", "k"), undefined);
  assert.equal(kv.get("c", "k"), undefined);
  assert.deepEqual(kv.namespaces(), ["a"]);
  kv.discard();
  assert.equal(kv.get("a", "k"), undefined, "read anew");
});

test("loadAllocations reads a job's allocations once and answers which are stored; what was read before stays", async (t) => {
  const { store, db } = await bucket(t);
  const [here, there, other] = ["ops/job/a/worker/1", "ops/job/a/worker/2", "ops/job/a0/worker/2"] as const;
  const first = store();
  for (const namespace of [here, there, other]) first.put(namespace, "version", "1.0");
  first.flush();
  const kv = store();
  assert.equal(kv.get(here, "version"), "1.0");
  db.run("UPDATE kv_version SET value = '2.0'");
  assert.deepEqual([...kv.loadAllocations("a")], [here, there]);
  db.run("DELETE FROM kv_version");
  assert.deepEqual([kv.get(here, "version"), kv.get(there, "version")], ["1.0", "2.0"]);
  assert.equal(kv.get(other, "version"), undefined);
});

test("a list is read without its own host, wherever that stands, and as it is where it does not", () => {
  const peers = (hosts: string, without: string) => textOfValue({ hosts, without });
  assert.deepEqual([peers("a,b,c", "a"), peers("a,b,c", "b"), peers("a,b,c", "c")], ["b,c", "a,c", "a,b"]);
  assert.deepEqual([peers("a", "a"), peers("a,b", "c"), peers("aa,a,ba", "a"), textOfValue("a,b")], ["", "a,b", "aa,ba", "a,b"]);
});

test("a key that cannot be opened is not there for whoever asks whether it is", async (t) => {
  const { store, db } = await bucket(t);
  const kv = store();
  kv.put("secrets/job/web", "a", "x");
  kv.put("n", "short", "x", 1);
  kv.flush();
  const foreign = new KvStore(db, Buffer.alloc(32, 7));
  const places = [
    ["secrets/job/web", "a"],
    ["secrets/job/web", "b"],
    ["n", "short"],
  ] as const;
  assert.deepEqual(
    places.map(([name, key]) => kv.has(name, key)),
    [true, false, true],
  );
  assert.deepEqual(
    places.map(([name, key]) => foreign.has(name, key)),
    [false, false, false],
  );
  const { version, ttl, createdMs } = kv.entry("n", "short") ?? {};
  assert.deepEqual([version, ttl, createdMs, kv.entry("n", "none")], [1, 1, 1_000_000_000_000, undefined]);
});

test("a write that is taken back before it is stored leaves nothing of itself", async (t) => {
  const { store, rows } = await bucket(t);
  const kv = store();
  kv.put("n", "a", "x");
  kv.put("secrets/job/web", "s", "x");
  kv.flush();
  for (const [namespace, key] of [
    ["n", "a"],
    ["secrets/job/web", "s"],
  ] as const) {
    kv.put(namespace, key, "y");
    kv.delete(namespace, key);
    kv.put(namespace, key, "x");
    assert.equal(kv.get(namespace, key), "x");
  }
  kv.put("n", "new", "y");
  kv.delete("n", "new");
  assert.equal(kv.get("n", "new"), undefined);
  kv.flush();
  assert.deepEqual([rows(), rows("secrets/job/web").length], [["a 1 x"], 1]);
});
