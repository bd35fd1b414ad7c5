import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { COMMANDS } from "../../lib/cli/main.ts";
import { toYaml } from "../../lib/codec/config/yaml.ts";
import { check } from "../../lib/core/shape.ts";
import { HTTP_STATUS } from "../../lib/http/message.ts";
import { openApiDocument } from "../../lib/server/openapi.ts";
import { ROUTE_GROUPS, ROUTES } from "../../lib/server/routes/table.ts";
import { TestServer } from "../helpers/server.ts";

const FILE = new URL("../../openapi.yaml", import.meta.url);
const checkedIn = readFileSync(FILE, "utf8");

test("the checked-in openapi.yaml is what the route table says; `npm run reference` writes it", () => {
  assert.equal(checkedIn, toYaml(openApiDocument(ROUTE_GROUPS)));
});

test("CP-019 CP-225 CP-349 openapi.yaml is a valid OpenAPI 3 description of /api without versions", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(checkedIn);
  assert.ok(valid, JSON.stringify(errors));
  assert.equal(validator.version, "3.1");
  validator.resolveRefs();
  assert.doesNotMatch(checkedIn, /^ {2}\/api\/v\d/m);
});

test("every route and every failure code is described, and nothing that is not there", () => {
  type Operation = { operationId: string; responses: Record<string, { description: string }> };
  const { paths, components } = openApiDocument(ROUTE_GROUPS) as {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas: { Error: { properties: { error: { enum: string[] } } } } };
  };
  // Signs of life come before all routes; test/server/watch/pulse.test.ts has what they answer.
  const { "/healthz": healthz, "/readyz": readyz, ...others } = paths;
  assert.deepEqual(
    [Object.keys(healthz?.get?.responses ?? {}), Object.keys(readyz?.get?.responses ?? {})],
    [["200"], ["200", "503"]],
  );
  const operations = Object.entries(others).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, ...operation })),
  );
  assert.deepEqual(
    operations.map(({ name }) => name).sort(),
    ROUTES.map(({ method, path }) => `${method} ${path.replace("*}", "}")}`).sort(),
  );
  assert.equal(new Set(operations.map(({ operationId }) => operationId)).size, operations.length);
  assert.deepEqual(components.schemas.Error.properties.error.enum, Object.keys(HTTP_STATUS));
  const described = new Set(
    operations.flatMap(({ responses }) =>
      Object.entries(responses)
        .filter(([status]) => Number(status) >= 400)
        .flatMap(([status, { description }]) => description.split(", ").map((code) => `${status} ${code}`)),
    ),
  );
  // `busy` is of the earlier variant alone.
  const routeless = ["method_not_allowed", "busy"];
  const known = Object.entries(HTTP_STATUS).filter(([code]) => !routeless.includes(code));
  assert.deepEqual([...described].sort(), known.map(([code, status]) => `${status} ${code}`).sort());
});

test("each command line of the description begins with a command that there is, and its operands are those of the command", () => {
  const lines = [...JSON.stringify(openApiDocument(ROUTE_GROUPS)).matchAll(/"x-command":"([^"]*)"/g)];
  assert.ok(lines.length > 50, String(lines.length));
  for (const [, line = ""] of lines) {
    const [words = "", ...operands] = line.replace(/ --.*/, "").split(" <");
    const command = COMMANDS.find(({ name }) => `ops ${name}` === words) ?? assert.fail(line);
    assert.ok(operands.length <= (command.operands?.length ?? 0), line);
  }
});

test("CP-019 CP-021 the server serves that description as YAML and as JSON", async (t) => {
  const server = await TestServer.start(t);
  const yaml = await server.call("GET", "/openapi.yaml");
  assert.deepEqual([yaml.status, yaml.headers.get("content-type")], [200, "application/yaml; charset=utf-8"]);
  assert.equal(yaml.text, checkedIn);
  const json = await server.call("GET", "/openapi.json");
  assert.deepEqual(json.body, JSON.parse(JSON.stringify(openApiDocument(ROUTE_GROUPS))));
});

test("every parameter, body and answer has an example that is right, and every failure one of its own", () => {
  type Parameter = { name: string; in: string; example: unknown };
  type Media = { example: unknown };
  type Described = {
    parameters?: Parameter[];
    requestBody?: { content: Record<string, Media> };
    responses: Record<string, { content?: Record<string, Media & { examples: object }> }>;
  };
  const { paths, components } = openApiDocument(ROUTE_GROUPS) as {
    paths: Record<string, Record<string, Described>>;
    components: { examples: Record<string, { value: { error: string } }> };
  };
  for (const { method, path, query = {}, headers = {}, body, answer } of ROUTES) {
    const operation = paths[path.replace("*}", "}")]?.[method.toLowerCase()] as Described;
    const right = (shape: Parameters<typeof check>[0], example: unknown, what: string) => {
      const checked = check(shape, example);
      assert.ok(checked.ok, `${method} ${path}: ${what}: ${JSON.stringify({ example, checked })}`);
    };
    for (const { name, in: place, example } of operation.parameters ?? []) {
      assert.ok(example !== undefined, `${path} ${name}`);
      const shape = { query, header: headers }[place]?.[name];
      if (place === "query" || (place === "header" && name in headers))
        right(shape as Parameters<typeof check>[0], example, name);
    }
    const given = (operation.parameters ?? []).filter((one) => one.in === "header").map(({ name }) => name);
    assert.deepEqual(given, answer.ranges ? ["Range", "If-Range", "If-None-Match"] : Object.keys(headers), path);
    if (body) right(body, operation.requestBody?.content["application/json"]?.example, "body");
    const success = operation.responses[answer.status]?.content?.["application/json"];
    if (answer.shape) right(answer.shape, success?.example, "answer");
    for (const [status, { content }] of Object.entries(operation.responses))
      if (Number(status) >= 400)
        for (const code of Object.keys(content?.["application/json"]?.examples ?? {}))
          assert.equal(components.examples[code]?.value.error, code);
  }
});
