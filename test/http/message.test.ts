import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../lib/core/errors.ts";
import { integer, object, optional, string } from "../../lib/core/shape.ts";
import { BODY_BYTES, failureAnswer, type HttpRequest, readJson, STATUS } from "../../lib/http/message.ts";
import { requestWith } from "../helpers/http.ts";

const SHAPE = object({ name: string(), size: optional(integer({ min: 1 })) });
const JSON_TYPE = { "content-type": "application/json" };

const requestOf = (chunks: (string | Uint8Array)[], headers: HttpRequest["headers"]) =>
  requestWith(chunks, { method: "POST", headers });

test("a body of known and typed fields is read, whatever the pieces it arrives in", async () => {
  for (const type of [
    "application/json",
    "Application/JSON; charset=UTF-8",
    'application/json;charset="utf-8"',
  ])
    assert.deepEqual(
      await readJson(requestOf(['{"name":"a', 'b","size":2}'], { "content-type": type }), SHAPE),
      { name: "ab", size: 2 },
    );
});

test("an empty body is an empty object and needs no content type", async () => {
  assert.deepEqual(await readJson(requestOf([], {}), object({})), {});
});

const REFUSED: [string, (string | Uint8Array)[], HttpRequest["headers"], string, RegExp][] = [
  [
    "another content type",
    ["{}"],
    { "content-type": "text/plain" },
    "unsupported_media_type",
    /application\/json/,
  ],
  ["no content type", ["{}"], {}, "unsupported_media_type", /Content-Type/],
  [
    "another charset",
    ["{}"],
    { "content-type": "application/json; charset=latin1" },
    "unsupported_media_type",
    /./,
  ],
  ["compression", ["{}"], { ...JSON_TYPE, "content-encoding": "gzip" }, "unsupported_media_type", /./],
  [
    "a length over the limit",
    [],
    { "content-length": String(BODY_BYTES + 1) },
    "payload_too_large",
    /1048576/,
  ],
  ["more bytes than the limit", ["x".repeat(BODY_BYTES), "x"], {}, "payload_too_large", /1048576/],
  ["malformed JSON", ['{"name":'], JSON_TYPE, "invalid_request", /not JSON/],
  ["bytes that are not UTF-8", [Buffer.from([0x22, 0xff, 0x22])], JSON_TYPE, "invalid_request", /UTF-8/],
  ["a list", ["[]"], JSON_TYPE, "invalid_request", /expected an object, found a list/],
  ["a missing field", ["{}"], JSON_TYPE, "invalid_request", /^name: is missing$/],
  [
    "an unknown field",
    ['{"name":"a","sise":1}'],
    JSON_TYPE,
    "invalid_request",
    /^sise: .*did you mean "size"/,
  ],
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
  const codes = Object.groupBy(Object.entries(STATUS), ([, status]) => String(status));
  const told = Object.entries(codes).map(
    ([status, all]) => `${status} ${all?.map(([code]) => code).join(" ")}`,
  );
  assert.deepEqual(told, [
    "400 invalid_request invalid_bucket_id invalid_source unknown_name",
    "401 unauthorized invalid_totp_code",
    "403 totp_required csrf_failed",
    "404 not_found bucket_not_found run_not_found file_not_found revision_not_found snapshot_not_found totp_disabled",
    "405 method_not_allowed",
    "409 bucket_busy bucket_exists run_not_active retry_impossible plan_stale bucket_not_initialized schema_upgrade_required schema_too_new database_damaged",
    ...[
      "413 payload_too_large",
      "415 unsupported_media_type",
      "416 range_not_satisfiable",
      "429 rate_limited",
    ],
    "500 internal",
    "503 shutting_down database_busy",
  ]);
});

test("CP-326 every failure is answered in one form, with the status of its code", () => {
  for (const [code, status] of Object.entries(STATUS)) {
    const answer = failureAnswer(new Failure(code as Failure["code"], "a sentence"), "r1");
    assert.equal(answer.status, status);
    assert.deepEqual(JSON.parse(String(answer.body)), { error: code, message: "a sentence" });
  }
});

test("a failure's details, the run in the way and the headers of its status are sent along", () => {
  const busy = new Failure("bucket_busy", "busy", { details: { run_id: "r", since: "now" } });
  assert.deepEqual(JSON.parse(String(failureAnswer(busy, "r1").body)), {
    ...{ error: "bucket_busy", message: "busy", run_id: "r" },
    details: { run_id: "r", since: "now" },
  });
  const limited = new Failure("rate_limited", "wait", { details: { retry_after_s: 7 } });
  assert.equal(failureAnswer(limited, "r1").headers?.["Retry-After"], "7");
  const method = new Failure("method_not_allowed", "no", { details: { allow: "GET, HEAD" } });
  assert.equal(failureAnswer(method, "r1").headers?.Allow, "GET, HEAD");
  assert.equal(
    failureAnswer(new Failure("unauthorized", "no"), "r1").headers?.["WWW-Authenticate"],
    "Bearer",
  );
});

test("a defect tells the client nothing but the request's id; a failure without a status keeps its sentence", () => {
  const defect = failureAnswer(new TypeError("secret at /root/x"), "r1");
  assert.equal(defect.status, 500);
  assert.match(String(defect.body), /r1/);
  assert.doesNotMatch(String(defect.body), /secret|TypeError| at /);
  const other = JSON.parse(String(failureAnswer(new Failure("failed", "the disk is full"), "r1").body));
  assert.deepEqual(other, { error: "internal", message: "the disk is full" });
});

test("a full disk is told as such", () => {
  const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  const { error, message } = JSON.parse(String(failureAnswer(full, "r1").body));
  assert.deepEqual([error, message], ["internal", "on the server the disk is full: make room there"]);
});
