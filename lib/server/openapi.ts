import { SESSION_PATH, VERIFY_PATH } from "../auth/guard.ts";
import { EARLIER_COOKIE, SESSION_COOKIE, TOTP_COOKIE } from "../auth/session.ts";
import type { FailureCode } from "../core/errors.ts";
import type { Schema } from "../core/shape.ts";
import { HTTP_STATUS } from "../http/message.ts";
import type { QueryFields } from "../http/router.ts";
import type { RouteGroups, ServerRoute } from "./context.ts";
import { ruleOf } from "./people/permission.ts";
import { COMPONENTS, component } from "./routes/shapes.ts";

/** The parameters of paths, each with its description and an example. */
const PARAMETERS: Readonly<Record<string, [description: string, example: string]>> = {
  token: ["The token: its name or its id", "ada"],
  session_id: ["The session", "a9b6ebde6519ed4268d5d0b4d0fe15c3"],
  bucket_id: ["The bucket: a UUID", "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70"],
  env_id: ["The environment: a UUID", "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70"],
  host: ["The host of the worker, as workers.json writes it", "10.0.0.1"],
  start_key: ["The Idempotency-Key of the start", "deploy-2026-01-31-a"],
  run_id: ["The run: a UUID", "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10"],
  message_id: ["The message: a UUID", "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f12"],
  proposal_id: ["The proposal: a UUID", "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f11"],
  revision_id: ["The revision: a UUID", "0198f3a2-6d10-7f25-a3b7-5c8e9f0a1b2c"],
  job: ["The job", "web"],
  key: ["The key of the secret", "db_password"],
  worker: ["The worker, as the catalog writes it", "10.0.0.1"],
  schedule: ["The schedule", "nightly"],
  name: ["The name of the snapshot", "20260131T023000.000Z-1f8a09c3"],
  selector: ["What job_config_selector in ops.conf names, or `default`", "default"],
  path: ["The path of the file; its slashes may stand as they are", "workspace/workers.json"],
};

const FIRST_FACTORS = [{ bearer: [] }, { session: [] }];
const SECOND_FACTORS = [{}, { totp_session: [] }, { totp_code: [] }];
/** The second factor is needed only where the server has TOTP, and never to verify a code. */
const SECURITY = SECOND_FACTORS.flatMap((second) => FIRST_FACTORS.map((first) => ({ ...first, ...second })));

const BEARER = { type: "http", scheme: "bearer", description: "The API token" };

/** What a description says of the whole server: its name, and the ways to sign in. */
interface ApiAbout {
  title: string;
  security: readonly Schema[];
  schemes: Readonly<Record<string, Schema>>;
  /** One token with all rights and nothing beside it: no role can be too small, and there is no TOTP. */
  isPlain: boolean;
}

const PRESENT: ApiAbout = {
  title: "ops control plane",
  security: SECURITY,
  schemes: {
    bearer: BEARER,
    session: sessionScheme(SESSION_COOKIE, `POST ${SESSION_PATH}`),
    totp_session: {
      type: "apiKey",
      in: "cookie",
      name: TOTP_COOKIE,
      description: `Set by POST ${VERIFY_PATH}. Needed on a server with TOTP, or else the next.`,
    },
    totp_code: {
      type: "apiKey",
      in: "header",
      name: "X-Ops-TOTP",
      description: "A fresh code of 6 digits, good for one request. It decides where there is the cookie too.",
    },
  },
  isPlain: false,
};

/** What the description of the earlier variant says. */
export const EARLIER_ABOUT: ApiAbout = {
  title: "ops serve, the earlier variant",
  security: FIRST_FACTORS,
  schemes: { bearer: BEARER, session: sessionScheme(EARLIER_COOKIE, "POST /signin") },
  isPlain: true,
};

function sessionScheme(name: string, setBy: string): Schema {
  const description = `Set by ${setBy}. Changes also need the Origin of this server and X-Ops-CSRF: 1.`;
  return { type: "apiKey", in: "cookie", name, description };
}

/** The OpenAPI 3.1 description of a route table, by the shapes that requests are checked with. Its groups are tags. */
export function openApiDocument(groups: RouteGroups, about: ApiAbout = PRESENT): object {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [tag, routes] of Object.entries(groups))
    for (const route of routes) {
      const path = route.path.replace("*}", "}");
      paths[path] ??= {};
      (paths[path] as Record<string, unknown>)[route.method.toLowerCase()] = operation(route, tag, about);
    }
  return {
    openapi: "3.1.0",
    info: {
      title: about.title,
      version: "1",
      description: "Every answer carries X-Request-Id. Times are RFC 3339 UTC, sizes bytes, durations milliseconds.",
    },
    security: about.security,
    paths: about.isPlain ? paths : { ...SIGNS_OF_LIFE, ...paths },
    components: {
      securitySchemes: about.schemes,
      schemas: Object.fromEntries(Object.entries(COMPONENTS).map(([name, shape]) => [name, shape.schema])),
      examples: Object.fromEntries(Object.keys(HTTP_STATUS).map((code) => [code, failureExample(code)])),
    },
  };
}

/** What is answered before any check of who asks, and so stands in no route table ({@link Pulse}). */
const SIGNS_OF_LIFE = {
  "/healthz": { get: sign("get_healthz", "Tell that the server answers") },
  "/readyz": {
    get: sign("get_readyz", "Tell that the server is ready, and looks at its schedules", {
      503: { description: "`not ready`: the server hangs, or cannot write below its root", content: textLike("not ready\n") },
    }),
  },
};

function sign(operationId: string, summary: string, more: Schema = {}): Schema {
  const description = "Needs no credentials, and says no more than this word.";
  const ok = { description: "`ok`", content: textLike("ok\n") };
  return { operationId, tags: ["Signs of life"], summary, description, security: [], responses: { 200: ok, ...more } };
}

function textLike(example: string): Schema {
  return { "text/plain": { schema: { type: "string" }, example } };
}

const BUCKET_PREFIX = "/api/buckets/{bucket_id}";
/** The command line that does the same, by method and path below a bucket; `*` is one part of both. */
const COMMAND_LINES: readonly [string, string][] = [
  ["POST /push", "ops push <url> --bucket <id>"],
  ["POST /source/rollback", "ops push rollback <url> --bucket <id>"],
  ["GET /source/revisions", "ops revisions list"],
  ["GET /source/revisions/{revision_id}/diff", "ops revisions diff <revision>"],
  ["PUT /secrets/jobs/{job}/{key}", "ops kv set-secret <job> <key>"],
  ["DELETE /secrets/jobs/{job}/{key}", "ops kv delete-secret <job> <key>"],
  ["PUT /secrets/notify/{key}", "ops notify set-secret <key>"],
  ["DELETE /secrets/notify/{key}", "ops notify delete-secret <key>"],
  ["GET /messages", "ops notify"],
  ["GET /incidents", "ops notify incidents"],
  ["POST /messages/{message_id}/retry", "ops notify retry <message>"],
  ["GET /secrets/ssh_key", "ops ssh-key show"],
  ["PUT /secrets/ssh_key", "ops ssh-key set"],
  ["DELETE /secrets/ssh_key", "ops ssh-key delete"],
  ["POST /snapshots/{name}/verify", "ops snapshot verify <name>"],
  ["POST /snapshots/{name}/restore", "ops snapshot restore <name>"],
  ["DELETE /snapshots/{name}", "ops snapshot delete <name>"],
  ["POST /snapshots", "ops snapshot create"],
  ["GET /snapshots", "ops snapshot list"],
  ["GET /runs", "ops runs list"],
  ["GET /runs/{run_id}", "ops runs show <run>"],
  ["GET /runs/{run_id}/logs", "ops runs follow <run>"],
  ["GET /runs/{run_id}/activity.log", "ops runs log <run>"],
  ["POST /runs/{run_id}/cancel", "ops runs cancel <run>"],
  ["GET /logs", "ops logs"],
  ["GET /jobs/{job}/logs", "ops logs <job>"],
  ["GET /doctor", "ops doctor"],
  ["GET /summary", "ops status"],
  ["GET /api/buckets", "ops buckets list"],
  ["POST /api/buckets", "ops buckets create <label>"],
  ["PUT ", "ops buckets rename <bucket> <label>"],
  ["DELETE ", "ops buckets delete <bucket>"],
  ["GET /info", "ops info"],
  ["POST /init", "ops init"],
  ["POST /hooks", "ops hooks <hook>"],
  ["POST /jobs/{job}/run", "ops job run <job> --target <target>"],
  ["POST /jobs/{job}/*", "ops job * <job>"],
  ["POST /workers/*", "ops worker *"],
  ["GET /cat/*", "ops cat *"],
  ...["build", "deploy", "health_check", "drift", "gc", "run_command"].map((name): [string, string] => [
    `POST /${name}`,
    `ops ${name}`,
  ]),
];

/** The command line that does the same as a route; undefined where there is none. */
function commandLine({ method, path }: ServerRoute): string | undefined {
  const key = `${method} ${path.replace(BUCKET_PREFIX, "")}`;
  for (const [pattern, command] of COMMAND_LINES) {
    const [before = "", after] = pattern.split("*");
    if (after === undefined ? key === pattern : key.startsWith(before) && !key.slice(before.length).includes("/"))
      return command.replace("*", key.slice(before.length));
  }
  return undefined;
}

function operation(route: ServerRoute, tag: string, about: ApiAbout): Schema {
  const named = [...namedParameters("query", route.query), ...namedParameters("header", route.headers)];
  const parameters = [...pathParameters(route), ...named, ...(route.answer.ranges ? DOWNLOAD_PARAMETERS : [])];
  return {
    operationId: operationId(route),
    tags: [tag],
    summary: route.summary,
    ...(about.isPlain ? { description: route.description } : roleOf(route)),
    ...(parameters.length > 0 && { parameters }),
    ...requestBody(route),
    "x-command": commandLine(route),
    responses: { [route.answer.status]: success(route), ...partial(route), ...failures(route, about) },
  };
}

/** What the column `role` says, in words and for programs. */
function roleOf({ description, role: needs }: ServerRoute): Schema {
  const { role, or, everywhere } = ruleOf(needs);
  const lesser = or ? `; \`${or.role}\` is enough ${or.says}` : "";
  const text = `Needs the role \`${role}\`${lesser}${everywhere ? ", and a token of all buckets" : ""}.`;
  return { description: [description, text].filter(Boolean).join(" "), "x-ops-role": role };
}

function failureExample(code: string): Schema {
  return { value: { error: code, message: "What is wrong, in one sentence" } };
}

/** `GET /api/buckets/{bucket_id}/runs` is `get_buckets_bucket_id_runs`. */
function operationId({ method, path }: ServerRoute): string {
  const words = path.replace(/^\/api\//, "").match(/\w+/g) ?? [];
  return [method.toLowerCase(), ...words].join("_");
}

function pathParameters({ path }: ServerRoute): Schema[] {
  return [...path.matchAll(/\{(\w+)\*?\}/g)].map(([, name = ""]) => {
    const [description, example] = PARAMETERS[name] ?? [];
    return { name, in: "path", required: true, description, schema: { type: "string" }, example };
  });
}

function namedParameters(place: "query" | "header", fields: QueryFields = {}): Schema[] {
  return Object.entries(fields).map(([name, shape]) => {
    const { description, examples, ...schema } = shape.schema;
    const required = shape.absent === undefined;
    return { name, in: place, required, description, schema, example: exampleOf(shape.schema) };
  });
}

function requestBody({ body, upload }: ServerRoute): Schema {
  if (body) {
    const required = "required" in body.schema;
    const content = { schema: body.schema, example: exampleOf(body.schema) };
    return { requestBody: { required, content: { "application/json": content } } };
  }
  const binary = upload?.map((type) => [type, { schema: { type: "string", format: "binary" } }]);
  return binary ? { requestBody: { required: true, content: Object.fromEntries(binary) } } : {};
}

function success({ answer: { description, shape, type, example, ranges } }: ServerRoute): Schema {
  const schema = shape?.schema ?? { type: type === "application/json" ? "object" : "string" };
  const media = shape ? "application/json" : type;
  const shown = shape ? exampleOf(schema) : example;
  const content = { schema, ...(shown !== undefined && { example: shown }) };
  return {
    description,
    ...(ranges && { headers: DOWNLOAD_HEADERS }),
    ...(media !== undefined && { content: { [media]: content } }),
  };
}

const TEXT_HEADER = { schema: { type: "string" } };
/** The headers of a request for a download. */
const DOWNLOAD_PARAMETERS: readonly Schema[] = [
  ["Range", "The part that is wanted, in bytes", "bytes=0-1023"],
  ["If-Range", "Send the part only of this version, else all of it", '"a1b2c3"'],
  ["If-None-Match", "Send nothing where this version is the present one", '"a1b2c3"'],
].map(([name, description, example]) => ({ name, in: "header", description, ...TEXT_HEADER, example }));
const DOWNLOAD_HEADERS = {
  ETag: { ...TEXT_HEADER, description: "Its version, for If-None-Match and If-Range" },
  "Accept-Ranges": TEXT_HEADER,
};

/** The further answers of a download. */
function partial({ answer: { type = "", ranges } }: ServerRoute): Schema {
  if (!ranges) return {};
  return {
    206: {
      description: "The part that Range asks for",
      headers: { ...DOWNLOAD_HEADERS, "Content-Range": TEXT_HEADER },
      content: { [type]: { schema: { type: "string" } } },
    },
    304: { description: "The version that If-None-Match names is the present one" },
  };
}

function failures(route: ServerRoute, about: ApiAbout): Schema {
  const byStatus = new Map<number, FailureCode[]>();
  for (const code of new Set([...commonFailures(route, about), ...(route.failures ?? [])])) {
    const status = HTTP_STATUS[code] ?? 500;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const described = [...byStatus].map(([status, codes]) => {
    const examples = Object.fromEntries(codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]));
    const content = { "application/json": { schema: component("Error").schema, examples } };
    return [status, { description: codes.join(", "), content }];
  });
  return Object.fromEntries(described);
}

/** The failures of the checks before the handlers. */
function commonFailures({ method, path, role, body, answer }: ServerRoute, { isPlain }: ApiAbout): FailureCode[] {
  const isForAll = isPlain || (role === "read" && !path.startsWith(BUCKET_PREFIX));
  return [
    "invalid_request",
    "unauthorized",
    ...(method === "GET" ? [] : (["csrf_failed"] as const)),
    ...(path === VERIFY_PATH || isPlain ? [] : (["totp_required"] as const)),
    ...(isForAll ? [] : (["forbidden"] as const)),
    ...(body ? (["payload_too_large", "unsupported_media_type"] as const) : []),
    ...(answer.ranges ? (["range_not_satisfiable"] as const) : []),
    "rate_limited",
    "internal",
    ...(method === "GET" || path.endsWith("/cancel") ? [] : (["audit_unavailable"] as const)),
    "shutting_down",
  ];
}

/** A value that the schema allows: the example of the schema where there is one, else the plainest value. */
function exampleOf(schema: Schema): unknown {
  if (Array.isArray(schema.examples)) return schema.examples[0];
  if ("default" in schema) return schema.default;
  if (typeof schema.$ref === "string")
    return exampleOf(COMPONENTS[schema.$ref.replace("#/components/schemas/", "")]?.schema ?? {});
  const [first] = ((schema.enum ?? schema.anyOf) as [Schema] | undefined) ?? [];
  if (first !== undefined) return schema.anyOf ? exampleOf(first) : first;
  if (schema.type === "array") return [exampleOf(schema.items as Schema)];
  if (schema.type === "object") return exampleObject(schema);
  if (schema.type === "boolean") return true;
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 1;
  return schema.type === "string" ? "text" : {};
}

function exampleObject({ properties = {}, allOf = [] }: Schema): unknown {
  // Of two fields that exclude each other the first is shown.
  const left = new Set((allOf as { not: { required: [string, string] } }[]).map(({ not }) => not.required[1]));
  const shown = Object.entries(properties as Record<string, Schema>).filter(([name]) => !left.has(name));
  return Object.fromEntries(shown.map(([name, schema]) => [name, exampleOf(schema)]));
}
