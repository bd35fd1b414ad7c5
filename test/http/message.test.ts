import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../lib/core/errors.ts";
import { integer, object, optional, string } from "../../lib/core/shape.ts";
import {
  BODY_BYTES,
  failureAnswer,
  HTTP_STATUS,
  type HttpRequest,
  json,
  raw,
  readJson,
  wireText,
} from "../../lib/http/message.ts";
import { requestWith } from "../helpers/http.ts";

const SHAPE = object({ name: string(), size: optional(integer({ min: 1 })) });
const JSON_TYPE = { "content-type": "application/json" };

const requestOf = (chunks: (string | Uint8Array)[], headers: HttpRequest["headers"]) =>
  requestWith(chunks, { method: "POST", headers });

test("a body of known and typed fields is read, whatever the pieces it arrives in", async () => {
  for (const type of ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'])
    assert.deepEqual(await readJson(requestOf(['{"name":"a', 'b","size":2}'], { "content-type": type }), SHAPE), {
      name: "ab",
      size: 2,
    });
});

test("an empty body is an empty object and needs no content type", async () => {
  assert.deepEqual(await readJson(requestOf([], {}), object({})), {});
});

const REFUSED: [string, (string | Uint8Array)[], HttpRequest["headers"], string, RegExp][] = [
  ["another content type", ["{}"], { "content-type": "text/plain" }, "unsupported_media_type", /application\/json/],
  ["no content type", ["{}"], {}, "unsupported_media_type", /Content-Type/],
  [
    "a charset that only begins alike",
    ["{}"],
    { "content-type": "application/json; charset=utf-8-x" },
    "unsupported_media_type",
    /./,
  ],
  ["another charset", ["{}"], { "content-type": "application/json; charset=latin1" }, "unsupported_media_type", /./],
  [
    "a parameter that only ends like a charset",
    ["{}"],
    { "content-type": "application/json; x-charset=utf-8" },
    "unsupported_media_type",
    /./,
  ],
  ["compression", ["{}"], { ...JSON_TYPE, "content-encoding": "gzip" }, "unsupported_media_type", /./],
  ["a length over the limit", [], { "content-length": String(BODY_BYTES + 1) }, "payload_too_large", /1048576/],
  ["more bytes than the limit", ["x".repeat(BODY_BYTES), "x"], {}, "payload_too_large", /1048576/],
  ["malformed JSON", ['{"name":'], JSON_TYPE, "invalid_request", /not JSON/],
  ["bytes that are not UTF-8", [Buffer.from([0x22, 0xff, 0x22])], JSON_TYPE, "invalid_request", /UTF-8/],
  ["a list", ["[]"], JSON_TYPE, "invalid_request", /expected an object, found a list/],
  ["a missing field", ["{}"], JSON_TYPE, "invalid_request", /^name: is missing$/],
  ["an unknown field", ['{"name":"a","sise":1}'], JSON_TYPE, "invalid_request", /^sise: .*did you mean "size"/],
  ["a prototype field", ['{"name":"a","__proto__":{}}'], JSON_TYPE, "invalid_request", /^__proto__: /],
  ["a wrong type", ['{"name":7}'], JSON_TYPE, "invalid_request", /^name: expected a string/],
  ["a number out of range", ['{"name":"a","size":0}'], JSON_TYPE, "invalid_request", /^size: .*at least 1/],
];
for (const [what, chunks, headers, code, message] of REFUSED)
  test(`a body with ${what} is refused as ${code}`, async () => {
    await assert.rejects(readJson(requestOf(chunks, headers), SHAPE), { code, message });
  });

test("all problems of a body are listed in the details", async () => {
  const sent = requestOf(['{"name":7,"other":1}'], JSON_TYPE);
  const failure = await readJson(sent, SHAPE).catch((error: Failure) => error as Failure);
  assert.ok(failure instanceof Failure);
  assert.match(failure.message, /\(and 1 more\)$/);
  assert.deepEqual((failure.details as { path: string }[]).map(({ path }) => path).sort(), ["name", "other"]);
});

test("each failure has its status", () => {
  const codes = Object.groupBy(Object.entries(HTTP_STATUS), ([, status]) => String(status));
  const told = Object.entries(codes).map(([status, all]) => `${status} ${all?.map(([code]) => code).join(" ")}`);
  assert.deepEqual(told, [
    "400 invalid_request invalid_bucket_id invalid_source unknown_name",
    "401 unauthorized invalid_totp_code",
    "403 totp_required csrf_failed forbidden approval_required",
    "404 not_found bucket_not_found run_not_found file_not_found revision_not_found snapshot_not_found proposal_not_found totp_disabled",
    "405 method_not_allowed",
    "409 bucket_busy busy bucket_exists run_not_active retry_impossible plan_stale frozen proposal_ended bucket_not_initialized schema_upgrade_required schema_too_new database_damaged",
    ...["413 payload_too_large", "415 unsupported_media_type", "416 range_not_satisfiable"],
    ...["422 idempotency_mismatch", "429 rate_limited"],
    "500 internal",
    "503 shutting_down database_busy audit_unavailable",
  ]);
});

test("CP-326 every failure is answered in one form, with the status of its code", () => {
  for (const [code, status] of Object.entries(HTTP_STATUS)) {
    const answer = failureAnswer(new Failure(code as Failure["code"], "a sentence"), "r1");
    assert.equal(answer.status, status);
    assert.deepEqual(JSON.parse(String(answer.body)), { error: code, message: "a sentence" });
  }
});

test("a failure's details, the run in the way and the headers of its status are sent along", () => {
  const busy = new Failure("bucket_busy", "busy", { details: { run_id: "r", since: "now" } });
  assert.deepEqual(JSON.parse(String(failureAnswer(busy, "r1").body)), {
    error: "bucket_busy",
    message: "busy",
    run_id: "r",
    details: { run_id: "r", since: "now" },
  });
  const limited = new Failure("rate_limited", "wait", { details: { retry_after_s: 7 } });
  assert.equal(failureAnswer(limited, "r1").headers?.["Retry-After"], "7");
  const method = new Failure("method_not_allowed", "no", { details: { allow: "GET, HEAD" } });
  assert.equal(failureAnswer(method, "r1").headers?.Allow, "GET, HEAD");
  assert.equal(failureAnswer(new Failure("unauthorized", "no"), "r1").headers?.["WWW-Authenticate"], "Bearer");
});

test("no header of one failure is sent with another", () => {
  const headers = (code: Failure["code"], details?: object) =>
    Object.keys(failureAnswer(new Failure(code, "no", { details }), "r1").headers ?? {});
  assert.deepEqual(headers("not_found", { size_bytes: 7, retry_after_s: 7, allow: "GET" }), ["Content-Type"]);
  assert.deepEqual(headers("unauthorized"), ["Content-Type", "WWW-Authenticate"]);
  const range = failureAnswer(new Failure("range_not_satisfiable", "no", { details: { size_bytes: 7 } }), "r1");
  assert.equal(range.headers?.["Content-Range"], "bytes */7");
});

test("a value and bytes are answered with 200 and their type", () => {
  const headers = { "Content-Type": "application/json; charset=utf-8" };
  assert.deepEqual(json(200, { a: 1 }), { status: 200, headers, body: '{"a":1}' });
  const csv = raw("text/csv", "a", { Vary: "Accept" });
  assert.deepEqual(csv, { status: 200, headers: { "Content-Type": "text/csv", Vary: "Accept" }, body: "a" });
});

test("what the parser refuses is answered whole: reason, common and own headers, length, and the end", () => {
  for (const [status, reason] of [
    [400, "Bad Request"],
    [408, "Request Timeout"],
    [431, "Request Header Fields Too Large"],
  ] as const)
    assert.equal(
      wireText(status, { status, headers: { A: "1" }, body: "\u00e4" }, { B: "2" }),
      `HTTP/1.1 ${status} ${reason}\r\nB: 2\r\nA: 1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n\u00e4`,
    );
});

test("a body of just as many bytes as it may have is read", async () => {
  const text = `{"name":"${"x".repeat(BODY_BYTES - 11)}"}`;
  const headers = { ...JSON_TYPE, "content-length": String(BODY_BYTES) };
  const { name } = await readJson(requestOf([text.slice(0, 9), text.slice(9)], headers), SHAPE);
  assert.equal(name.length, BODY_BYTES - 11);
});

test("a defect tells the client nothing but the request's id; a failure without a status keeps its sentence", () => {
  const defect = failureAnswer(new TypeError("secret at /root/x"), "r1");
  assert.equal(defect.status, 500);
  assert.match(String(defect.body), /r1/);
  assert.doesNotMatch(String(defect.body), /secret|TypeError| at /);
  const { status, body } = failureAnswer(new Failure("failed", "the disk is full"), "r1");
  assert.equal(status, 500);
  assert.deepEqual(JSON.parse(String(body)), { error: "internal", message: "the disk is full" });
});

test("a database that others keep busy is told as such: it can be asked again", () => {
  const locked = Object.assign(new Error("database is locked"), { errcode: 5 });
  const { status, body } = failureAnswer(locked, "r1");
  const message = "the bucket's database is busy; try again";
  assert.deepEqual([status, JSON.parse(String(body))], [503, { error: "database_busy", message }]);
});

test("what is wrong with the JSON of a body is kept for the log", async () => {
  const read = readJson(requestOf(["{"], JSON_TYPE), SHAPE);
  await assert.rejects(read, ({ cause }) => cause instanceof SyntaxError);
});

test("a full disk is told as such", () => {
  const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  const { error, message } = JSON.parse(String(failureAnswer(full, "r1").body));
  assert.deepEqual([error, message], ["internal", "on the server the disk is full: make room there"]);
});
