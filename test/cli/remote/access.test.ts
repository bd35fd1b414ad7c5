import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { accessOn } from "../../../lib/cli/remote/access.ts";
import type { BucketAccess } from "../../../lib/cli/state/access.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = uuidV7();
const REVISION = {
  id: ID,
  created_at: "2026-11-24T00:00:00Z",
  run_id: ID,
  ...{ size_bytes: 1, file_count: 1, sha256: "aa", build_status: "succeeded", note: null, commit: null, by: null },
  ...{ current: true, last_successful: true },
};

/** A bucket of a server that answers each request with this, or with the next of several; `asked` gets what is asked for. */
async function bucketOf(t: TestContext, answer: unknown, asked: string[] = []): Promise<BucketAccess> {
  const server = createServer(async (request, response) => {
    const body = (await Array.fromAsync(request)).join("");
    asked.push(`${request.method} ${request.url?.replace(`/api/buckets/${ID}`, "")} ${body}`.trim());
    response.end(JSON.stringify(answer instanceof Answers ? answer.next() : answer));
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => server.close());
  const tokenFile = path.join(temporaryFolder(t), "token");
  writeFileSync(tokenFile, TOKEN, { mode: 0o600 });
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const unset = { caFile: undefined, folderCa: undefined, totp: undefined };
  return await accessOn({ address, bucket: ID, fromFolder: false, tokenFile, ...unset });
}

/** One answer after the other. */
class Answers {
  readonly #left: unknown[];

  constructor(...all: unknown[]) {
    this.#left = all;
  }

  next(): unknown {
    return this.#left.shift() ?? {};
  }
}

const never = new AbortController().signal;
const READS: Readonly<Record<string, (bucket: BucketAccess) => Promise<unknown>>> = {
  place: (bucket) => bucket.place(),
  runs: (bucket) => bucket.runs({ limit: 1 }),
  run: (bucket) => bucket.run(ID),
  log: (bucket) => bucket.log(ID, 0, never),
  lines: (bucket) => bucket.lines(ID, { tail: true, limit: 1 }),
  revisions: (bucket) => bucket.revisions(),
  diff: (bucket) => bucket.diff(ID, undefined),
  summary: (bucket) => bucket.summary(),
  line: (bucket) => bucket.line(),
  sshKey: (bucket) => bucket.sshKey(),
  storeSshKey: (bucket) => bucket.storeSshKey("key"),
  snapshots: (bucket) => bucket.snapshots(),
  info: (bucket) => bucket.info(),
  view: (bucket) => bucket.view("jobs", {}),
  key: (bucket) => bucket.key("a", "b", false),
};

for (const [name, read] of Object.entries(READS))
  test(`an answer of another form is one sentence, not a wrong output: ${name}`, async (t) => {
    const bucket = await bucketOf(t, { items: [{ id: { no: "text" } }], next_cursor: null, columns: ["id"] });
    await assert.rejects(read(bucket), {
      code: "failed",
      message: /^Cannot understand the server's answer: \S+ .*; is the server of another version\?$/,
    });
  });

test("fields that a newer server adds stay", async (t) => {
  const items = [{ ...REVISION, signed_by: "somebody" }];
  const bucket = await bucketOf(t, { items, next_cursor: null });
  assert.deepEqual(await bucket.revisions(), items);
});

test("what a command wants of a bucket is asked for at its place, whole", async (t) => {
  const page = { columns: ["id"], items: [], next_cursor: null };
  const wanted: [work: (bucket: BucketAccess) => Promise<unknown>, ...asked: string[]][] = [
    [(bucket) => bucket.lines(ID, { tail: true, limit: 7 }), `GET /runs/${ID}/logs/lines?tail=true&limit=7&timeout=0`],
    [(bucket) => bucket.cancel(ID), `POST /runs/${ID}/cancel {}`],
    [(bucket) => bucket.diff(ID, "other"), `GET /source/revisions/${ID}/diff?against=other`],
    [(bucket) => bucket.health("web"), "GET /health?limit=500&job=web"],
    [(bucket) => bucket.line(), "GET /queue"],
    [(bucket) => bucket.storeSshKey("key"), 'PUT /secrets/ssh_key {"private_key":"key"}'],
    [(bucket) => bucket.removeSshKey(), "DELETE /secrets/ssh_key"],
    [(bucket) => bucket.removeSnapshot(ID), "GET /snapshots?limit=500", `DELETE /snapshots/${ID}`],
    [(bucket) => bucket.view("jobs", { active: true, jobs: ["a", "b"] }), "GET /cat/jobs?active=true&jobs=a%2Cb"],
    [(bucket) => bucket.changeSecret({ job: null, key: "k" }), "DELETE /secrets/notify/k"],
    [
      (bucket) => bucket.changeSecret({ job: "web", key: "a b", value: "v", ttlSeconds: 3 }),
      'PUT /secrets/jobs/web/a%20b {"value":"v","ttl":3}',
    ],
  ];
  for (const [work, ...expected] of wanted) {
    const asked: string[] = [];
    const answers = { ...page, items: [{ name: ID }] };
    await work(await bucketOf(t, answers, asked)).catch(() => {});
    assert.deepEqual(asked, expected);
  }
  const asked: string[] = [];
  const bucket = await bucketOf(t, page, asked);
  await assert.rejects(bucket.key("secrets/job/web", "a", true), {
    code: "usage",
    message: /^--reveal: a server sends no secret/,
  });
  assert.deepEqual(asked, []);
});

test("the newest runs come in pages of at most 100, and no more than are wanted", async (t) => {
  const run = (number: number) => ({ id: number });
  const pages = (...sizes: number[]) =>
    new Answers(...sizes.map((size, at) => ({ items: Array.from({ length: size }, () => run(at)), next_cursor: `c${at}` })));
  const askedFor = async (limit: number, answers: Answers) => {
    const asked: string[] = [];
    const bucket = await bucketOf(t, answers, asked);
    // These are no runs, which is told last.
    await assert.rejects(bucket.runs({ limit, kind: "deploy" }), { code: "failed" });
    return asked;
  };
  assert.deepEqual(await askedFor(100, pages(100)), ["GET /runs?kind=deploy&limit=100"]);
  assert.deepEqual(await askedFor(230, pages(100, 100, 30)), [
    "GET /runs?kind=deploy&limit=100",
    "GET /runs?kind=deploy&cursor=c0&limit=100",
    "GET /runs?kind=deploy&cursor=c1&limit=30",
  ]);
  const last = new Answers({ items: [run(1)], next_cursor: null });
  assert.deepEqual(await askedFor(5, last), ["GET /runs?kind=deploy&limit=5"]);
});

test("a key is the one of its namespace, on whatever page it stands", async (t) => {
  const row = (namespace: string, key: string) => ({ namespace, key, value: `${namespace}.${key}`, other: 1 });
  const answers = new Answers(
    { columns: [], items: [row("a", "x"), row("b", "y")], next_cursor: "next" },
    { columns: [], items: [row("a", "y")], next_cursor: null },
  );
  const asked: string[] = [];
  const bucket = await bucketOf(t, answers, asked);
  const rest = { version: null, ttl: null, created_date: null };
  assert.deepEqual(await bucket.key("a", "y", false), { namespace: "a", key: "y", value: "a.y", ...rest });
  assert.deepEqual(asked, ["GET /cat/kv", "GET /cat/kv?cursor=next"]);
});
