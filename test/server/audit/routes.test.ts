import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { AuditLine } from "../../../lib/audit/line.ts";
import { check } from "../../../lib/core/shape.ts";
import type { Answer, StreamedBody } from "../../../lib/http/message.ts";
import { AUDIT_ROUTES } from "../../../lib/server/audit/routes.ts";
import type { Context, ServerRoute } from "../../../lib/server/context.ts";
import { auditBelow } from "../../helpers/audit-log.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const [LIST, HEAD, FILES, FILE] = AUDIT_ROUTES as [ServerRoute, ServerRoute, ServerRoute, ServerRoute];
const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

test("a query of the audit has kinds that there are, times and texts within their bounds", () => {
  const shapes = LIST.query ?? {};
  const taken = (name: string, values: unknown[]) => values.filter((value) => check(shapes[name] ?? assert.fail(name), value).ok);
  assert.deepEqual(taken("what", ["start", "start,cancel", "", "start,", "nothing", "x".repeat(501)]), ["start", "start,cancel"]);
  const what = check(shapes.what ?? assert.fail(), "start,nothing");
  assert.match(what.ok ? "" : (what.problems[0]?.message ?? ""), /^"nothing" is no kind: expected sign_in, /);
  const times = ["2026-11", "2026-11-26", "2026-11-26T10", "2026-11-26T10:00:00Z", "2026-11-26T10:00:00.00Z"];
  const noTimes = ["2026", "26-11", "x2026-11", "2026-11x", "2026-11-26T", "2026-11-26T10:00:00.0001Z", "2026-11-2", "yesterday"];
  for (const name of ["since", "until"]) assert.deepEqual(taken(name, [...times, ...noTimes]), times, name);
  for (const name of ["who", "from", "request"])
    assert.deepEqual(
      taken(name, ["", "x", "x".repeat(200), "x".repeat(201)]).map((text) => String(text).length),
      [1, 200],
      name,
    );
  assert.deepEqual(taken("limit", [0, 1, 500, 501]), [1, 500]);
});

test("the lines of the audit are listed to whom they concern, its end and its files to whoever may see all of it", async (t) => {
  const root = temporaryFolder(t);
  const { log } = auditBelow(root);
  for (const bucket of [BUCKET, undefined, BUCKET.replace(/.$/, "1")])
    await log.append({ what: "change", who: "ada", ...(bucket && { bucket }) });
  const audit = { folder: log.folder, key: () => log.key(), head: () => log.head(), trouble: undefined as string | undefined };
  const ask = async (route: ServerRoute, call: object = {}, identity: object = {}) => {
    const handle = route.handle as (call: object, context: Context) => Promise<Answer>;
    const request = { headers: {}, method: "GET" };
    const { status, headers, body } = await handle({ params: {}, query: {}, request, ...call }, {
      audit,
      identity: { role: "read", ...identity },
    } as never);
    if (typeof body === "string") return { status, headers, value: JSON.parse(body) };
    const streamed = body as StreamedBody;
    const text = Buffer.concat(await Array.fromAsync(streamed.read())).toString();
    await streamed.close();
    return { status, headers, value: text };
  };
  const numbers = async (query: object, identity?: object) =>
    (await ask(LIST, { query }, identity)).value.items.map(({ n }: AuditLine) => n);
  assert.deepEqual(await numbers({ limit: 9 }), [3, 2, 1]);
  assert.deepEqual(await numbers({ limit: 9 }, { buckets: [BUCKET] }), [1]);
  assert.deepEqual(
    [await numbers({ limit: 1 }), await numbers({ limit: 9, bucket: BUCKET }), await numbers({ limit: 9, who: "bob" })],
    [[3], [1], []],
  );
  const { publicKey, fingerprint } = await log.key();
  const end = { ...(await log.head()), public_key: publicKey, fingerprint, trouble: null };
  assert.deepEqual((await ask(HEAD)).value, end);
  audit.trouble = "the disk is full";
  assert.deepEqual((await ask(HEAD)).value, { ...end, trouble: "the disk is full" });
  const { items } = (await ask(FILES)).value;
  const name = `${new Date().toISOString().slice(0, 7)}.jsonl`;
  const text = readFileSync(path.join(log.folder, name), "utf8");
  assert.deepEqual(items, [{ name, size_bytes: Buffer.byteLength(text) }]);
  const { value, headers } = await ask(FILE, { params: { name } });
  assert.deepEqual([value, headers?.["Content-Type"]], [text, "application/x-ndjson"]);
  for (const other of ["", "../audit.key", "1999-01.jsonl"])
    await assert.rejects(ask(FILE, { params: { name: other } }), {
      code: "file_not_found",
      message: `the audit has no file ${JSON.stringify(other)}`,
    });
  for (const { role } of [FILES, FILE]) assert.deepEqual(role, { role: "read", everywhere: true });
});
