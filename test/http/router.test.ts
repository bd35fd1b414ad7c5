import assert from "node:assert/strict";
import { test } from "node:test";
import { boolean, integer, object, optional, string, withDefault } from "../../lib/core/shape.ts";
import { type HttpRequest, json } from "../../lib/http/message.ts";
import { callRoute, findRoute, type Route, requireReading } from "../../lib/http/router.ts";
import { requestWith } from "../helpers/http.ts";

const answer = { status: 200, description: "fine" };
const QUERY = { limit: withDefault(integer({ min: 1, max: 9 }), 5), all: optional(boolean()), name: optional(string()) };
const ROUTES: Route<string>[] = [
  { method: "GET", path: "/api/things", summary: "", answer, query: QUERY, handle: async ({ query }) => json(200, query) },
  {
    method: "POST",
    path: "/api/things",
    summary: "",
    answer,
    body: object({ a: optional(integer()) }),
    handle: async ({ body }) => json(200, body),
  },
  {
    method: "GET",
    path: "/api/things/{thing}/parts/{part}",
    summary: "",
    answer,
    handle: async ({ params }, context) => json(200, { ...params, context }),
  },
  { method: "DELETE", path: "/api/things/{thing}", summary: "", answer, handle: async () => json(200, {}) },
];

function requestOf(method: string, target: string, body = ""): HttpRequest {
  const [path = "", query = ""] = target.split("?");
  const headers = { "content-type": "application/json" };
  return requestWith(body === "" ? [] : [body], { method, path, query, headers, peer: "::1" });
}

async function call(method: string, target: string, body?: string): Promise<unknown> {
  const request = requestOf(method, target, body);
  return JSON.parse(String((await callRoute(findRoute(ROUTES, request), request, "context")).body));
}

test("a path matches part by part, and its parameters are decoded", async () => {
  assert.deepEqual(await call("GET", "/api/things/a%20b/parts/%C3%A9"), { thing: "a b", part: "é", context: "context" });
  assert.deepEqual(await call("HEAD", "/api/things"), { limit: 5 });
});

test("a path is found for each method that a route has for it", () => {
  const routes = [
    ...ROUTES,
    { method: "PUT" as const, path: "/api/things/{thing}", summary: "", answer, handle: async () => json(200, 1) },
  ];
  for (const method of ["DELETE", "PUT"]) {
    const { route, params } = findRoute(routes, requestOf(method, "/api/things/one?a=b"));
    assert.deepEqual([route.method, params], [method, { thing: "one" }]);
  }
  assert.throws(() => findRoute(routes, requestOf("GET", "/api/things/one")), { details: { allow: "DELETE, PUT" } });
});

for (const path of [
  ...["/", "", "*", "/api", "/api/things/", "/api/things/x", "//api/things", "/api//things", "/./api/things"],
  ...["/API/things", "/%61pi/things", "/api/%74hings", "/x/../api/things", "/api/things;a", "http://h/api/things"],
  ...["/api/things/../parts/x", "/api/things/%2e%2e/parts/x", "/api/things/./parts/x", "/api/things//parts/x"],
  ...["/api/things/a%2fb/parts/x", "/api/things/a%5cb/parts/x", "/api/things/a%00b/parts/x"],
  ...["/api/things/%/parts/x", "/api/things/%ff/parts/x"],
])
  test(`GET ${JSON.stringify(path)} is not found: nothing is normalised`, async () => {
    const code = path === "/api/things/x" ? "method_not_allowed" : "not_found";
    await assert.rejects(call("GET", path), { code });
  });

test("a known path with another method names the methods it takes", async () => {
  await assert.rejects(call("PUT", "/api/things"), { code: "method_not_allowed", details: { allow: "GET, HEAD, POST" } });
  await assert.rejects(call("OPTIONS", "/api/things/x"), { details: { allow: "DELETE" } });
});

test("query parameters are typed by their shapes and defaults apply", async () => {
  assert.deepEqual(await call("GET", "/api/things"), { limit: 5 });
  assert.deepEqual(await call("GET", "/api/things?limit=9&all=false&name=7"), { limit: 9, all: false, name: "7" });
});

for (const [query, message] of [
  ["limit=0", /^limit: .*from 1 to 9/],
  ["limit=10", /^limit: /],
  ["limit=1e0", /^limit: expected an integer/],
  ["limit=", /^limit: expected an integer/],
  ["limit=123456789012345", /^limit: expected a number from 1 to 9/],
  ["limit=1234567890123456", /^limit: expected an integer/],
  ["all=yes", /^all: expected true or false/],
  ["all=True", /^all: /],
  ["unknown=1", /^unknown: is not a known field/],
  ["limit=2&limit=3", /^limit: is given twice/],
  ["__proto__=1", /^__proto__: /],
] as const)
  test(`the query ${query} is refused with its name`, async () => {
    await assert.rejects(call("GET", `/api/things?${query}`), { code: "invalid_request", message });
  });

test("the body is checked against the route's shape, after the query", async () => {
  assert.deepEqual(await call("POST", "/api/things", '{"a":1}'), { a: 1 });
  assert.deepEqual(await call("POST", "/api/things"), {});
  await assert.rejects(call("POST", "/api/things?x=1", '{"b":1}'), { message: /^x: / });
  await assert.rejects(call("POST", "/api/things", '{"b":1}'), { message: /^b: / });
});

for (const [path, rest] of [
  ["/files/a", "a"],
  ["/files/a/b%20c/%C3%A9", "a/b c/é"],
  ["/files/a%5Cb", "a\\b"],
  ["/files/%25", "%"],
  ["/files/.../a", ".../a"],
  ["/files", undefined],
  ["/files/", undefined],
  ["/files/a/", undefined],
  ["/files/a//b", undefined],
  ["/files/../a", undefined],
  ["/files/a/%2e%2e/b", undefined],
  ["/files/a/.%2E", undefined],
  ["/files/./a", undefined],
  ["/files/a%2fb", undefined],
  ["/files/a%00", undefined],
  ["/files/a%0a", undefined],
  ["/files/%ff", undefined],
  ["/files/%", undefined],
] as const)
  test(`the rest of the path ${path} is ${JSON.stringify(rest)}`, () => {
    const routes = [{ method: "GET", path: "/files/{path*}" }] as const;
    const find = () => findRoute(routes, requestOf("GET", path)).params.path;
    if (rest === undefined) assert.throws(find, { code: "not_found" });
    else assert.equal(find(), rest);
  });

test("a name before the rest of a path is one part of it", () => {
  const routes = [{ method: "GET", path: "/jobs/{job}/files/{path*}" }] as const;
  assert.deepEqual(findRoute(routes, requestOf("GET", "/jobs/.../files/a/b")).params, { job: "...", path: "a/b" });
});

test("a handler gets the request and the headers that its route names, typed; others are not looked at", async () => {
  const headers = { "Ops-Count": optional(integer({ max: 9 })), "Ops-Name": optional(string()) };
  const handle: Route<string>["handle"] = async ({ request, headers: given }) => json(200, [request.method, given]);
  const route = { method: "GET" as const, path: "/", summary: "", answer, headers, handle };
  const told = async (sent: Record<string, string>) => {
    const request = requestWith([], { headers: sent });
    return JSON.parse(String((await callRoute(findRoute([route], request), request, "")).body));
  };
  assert.deepEqual(await told({ "ops-count": "7", "ops-name": "7", "ops-else": "x" }), [
    "GET",
    { "Ops-Count": 7, "Ops-Name": "7" },
  ]);
  assert.deepEqual(await told({}), ["GET", {}]);
  await assert.rejects(told({ "ops-count": "10" }), { code: "invalid_request", message: /^Ops-Count: / });
});

test("where there is only something to read, other methods are refused with those that read", () => {
  for (const method of ["GET", "HEAD"]) requireReading(requestOf(method, "/"));
  for (const method of ["POST", "DELETE"])
    assert.throws(() => requireReading(requestOf(method, "/")), {
      code: "method_not_allowed",
      message: `this path takes GET, HEAD, not ${method}`,
      details: { allow: "GET, HEAD" },
    });
});

test("a query has at most 100 values", async () => {
  const request = (count: number) =>
    requestOf("GET", `/api/things?${Array.from({ length: count }, (_, at) => `a${at}=`).join("&")}`);
  for (const [count, message] of [
    [100, /^a0: is not a known field/],
    [101, /^the query has more than 100 values$/],
  ] as const)
    await assert.rejects(async () => callRoute(findRoute(ROUTES, request(count)), request(count), ""), {
      code: "invalid_request",
      message,
    });
});
