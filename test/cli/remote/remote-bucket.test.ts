import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient } from "../../../lib/cli/remote/client.ts";
import { allItems, bucketNamed, patiently, queryText, RemoteBucket } from "../../../lib/cli/remote/remote-bucket.ts";
import { Failure } from "../../../lib/core/errors.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const [OTHER, THIRD] = ["0198f3a2-4c1e-7a31-9d52-6f1d8a3c0001", "0198f3a2-4c1e-7a31-9d52-6f1d8a3c0002"];

/** A client that answers so, one answer after the other, and notes what is asked for. */
function clientOf(...answers: unknown[]) {
  const asked: string[] = [];
  const call = async (method: string, path: string) => {
    asked.push(`${method} ${path.replace(`/api/buckets/${ID}`, "")}`);
    return answers.length > 1 ? answers.shift() : answers[0];
  };
  return { asked, client: { call } as unknown as ApiClient };
}

const page = (...items: object[]) => ({ items, next_cursor: null });

test("a query leaves out what is not asked for, and encodes the rest", () => {
  assert.equal(queryText({}), "");
  assert.equal(queryText({ a: undefined, b: false }), "");
  assert.equal(queryText({ a: 0, b: "", c: true, d: ["x", "y z"], e: "&=" }), "?a=0&b=&c=true&d=x%2Cy%20z&e=%26%3D");
});

test("a path is encoded behind its first part, and a part without text is left out", () => {
  const bucket = new RemoteBucket(clientOf().client, ID);
  assert.equal(bucket.path("/a/b", "c/d", ".. é"), `/api/buckets/${ID}/a/b/c%2Fd/..%20%C3%A9`);
  assert.equal(bucket.path(""), `/api/buckets/${ID}`);
});

test("all items of a list come in pages of 500, in their order", async () => {
  const { asked, client } = clientOf({ items: [{ a: 1 }], next_cursor: "x y" }, { items: [{ a: 2 }] });
  assert.deepEqual(await allItems(client, "/list", { job: "web" }), [{ a: 1 }, { a: 2 }]);
  assert.deepEqual(asked, ["GET /list?limit=500&job=web", "GET /list?limit=500&job=web&cursor=x%20y"]);
});

test("a run, a revision or a snapshot is named by its whole name, or by a part of at least four letters", async () => {
  const of = (...items: object[]) => {
    const { asked, client } = clientOf(page(...items));
    return { asked, bucket: new RemoteBucket(client, ID) };
  };
  const whole = of();
  assert.deepEqual(
    [await whole.bucket.runNamed(ID.toUpperCase()), await whole.bucket.revisionNamed(ID.toUpperCase()), whole.asked],
    [ID, ID, []],
  );
  const run = of({ id: ID });
  assert.deepEqual([await run.bucket.runNamed("5e70"), run.asked], [ID, ["GET /runs?id=5e70&limit=20"]]);
  const short = of({ id: ID });
  await assert.rejects(short.bucket.runNamed("e70"), { code: "usage", message: /give at least 4 letters/ });
  assert.deepEqual(short.asked, []);
  await assert.rejects(of().bucket.runNamed("5e70"), { code: "run_not_found" });
  assert.equal(await of({ id: ID }, { id: OTHER }).bucket.revisionNamed("0001"), OTHER);
  const name = "20260101T000000.000Z-00000000";
  for (const given of [name, `${name}.tar.gz`, `${name}.tar.gz.sealed`, "20260101"]) {
    const { asked, bucket } = of({ name }, { name: "other" });
    assert.equal(await bucket.snapshotNamed(given), name);
    assert.deepEqual(asked, ["GET /snapshots?limit=500"]);
  }
  for (const given of [`${name}.tar.gz.sealed2`, `x.tar.gz/${name}`])
    await assert.rejects(of({ name }).bucket.snapshotNamed(given), { code: "snapshot_not_found" });
  assert.equal(await of({ name: "a", seal: { for: "passphrase" } }, { name: "b", seal: null }).bucket.sealOf("b"), null);
  assert.equal(await of({ name: "a" }).bucket.sealOf("c"), null);
  const hooks = of({ job: "web" });
  assert.deepEqual([await hooks.bucket.hooks(), hooks.asked], [[{ job: "web" }], ["GET /cat/hooks?limit=500"]]);
});

test("a bucket is meant by its name, with its project or without, by its id or a part of it, or as the only one", async () => {
  const buckets = [
    { id: ID, project: "shop", name: "live" },
    { id: OTHER, project: "shop", name: "test" },
    { id: THIRD, project: "other", name: "test" },
  ];
  const named = async (given: string | undefined, ...all: object[]) => await bucketNamed(clientOf(page(...all)).client, given);
  for (const [given, id] of [
    ["live", ID],
    ["shop/test", OTHER],
    ["other/test", THIRD],
    [ID.toUpperCase(), ID],
    ["5E70", ID],
    ["0002", THIRD],
  ] as const)
    assert.equal(await named(given, ...buckets), id, given);
  assert.equal(await named(undefined, buckets[1] as object), OTHER);
  const untouched = clientOf();
  assert.deepEqual([await bucketNamed(untouched.client, ID), untouched.asked], [ID, []]);
  const shown = buckets.map(({ id, project, name }) => `\n  ${project}/${name}  ${id}`);
  const help = "no bucket is named: name it with --bucket or OPS_BUCKET:";
  await assert.rejects(named(undefined, ...buckets), { code: "usage", message: `${help}${shown.join("")}` });
  await assert.rejects(named(undefined), {
    code: "usage",
    message: "the server has no bucket: make one with `ops buckets create`",
  });
  const two = 'the name "test" is that of 2 buckets: name it by project/name or id:';
  await assert.rejects(named("test", ...buckets), { code: "usage", message: `${two}${shown.slice(1).join("")}` });
  const twins = 'the name "shop/test" is that of 2 buckets: name it by id:';
  const twin = { ...buckets[1], id: THIRD };
  await assert.rejects(named("shop/test", buckets[1] as object, twin), { code: "usage", message: new RegExp(`^${twins}\n`) });
  for (const given of ["none", "e70"])
    await assert.rejects(named(given, ...buckets), {
      ...{ code: "bucket_not_found", message: `the server has no bucket "${given}"; \`ops buckets list\` shows them` },
    });
});

test("what gets no answer is tried again until somebody stops it; any other failure is told at once", async () => {
  const told: string[] = [];
  const tell = (text: string) => told.push(text);
  assert.equal(await patiently({ tell }, async () => 1), 1);
  const lost = (details: object) => new Failure("failed", "no answer", { details });
  const signal = AbortSignal.abort();
  const fails = async (details: object, retry: object = {}, how: object = {}) => {
    let tries = 0;
    const work = async () => {
      tries++;
      throw lost(details);
    };
    await assert.rejects(patiently({ signal, tell, ...retry }, work, how));
    return [tries, told.splice(0)];
  };
  assert.deepEqual(await fails({}), [1, []]);
  assert.deepEqual(await fails({ unreachable: true }), [1, ["no answer; trying again"]]);
  assert.deepEqual(await fails({ unreachable: true }, { ms: -1 }), [1, []]);
  assert.deepEqual(await fails({ unreachable: true }, {}, { sent: true }), [1, []]);
  assert.deepEqual(await fails({ unreachable: true, sent: true }, {}, { sent: true }), [1, ["no answer; trying again"]]);
});
