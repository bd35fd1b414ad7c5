import { VERIFY_PATH } from "../auth/guard.ts";
import { SESSION_COOKIE, TOTP_COOKIE } from "../auth/session.ts";
import type { FailureCode } from "../core/errors.ts";
import type { Schema } from "../core/shape.ts";
import { STATUS } from "../http/message.ts";
import type { ServerRoute } from "./context.ts";
import { COMPONENTS, component } from "./routes/shapes.ts";

const PARAMETERS: Readonly<Record<string, string>> = {
  bucket_id: "The bucket: a UUID",
  run_id: "The run: a UUID",
};

const FIRST_FACTORS = [{ bearer: [] }, { session: [] }];
const SECOND_FACTORS = [{}, { totp_session: [] }, { totp_code: [] }];
/** The second factor only where the server has TOTP, and never to verify a code. */
const SECURITY = SECOND_FACTORS.flatMap((second) => FIRST_FACTORS.map((first) => ({ ...first, ...second })));

/** The OpenAPI 3.1 description of a route table: what is checked is what is described. */
export function openApiDocument(routes: readonly ServerRoute[]): object {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    paths[route.path] ??= {};
    (paths[route.path] as Record<string, unknown>)[route.method.toLowerCase()] = operation(route);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "ops control plane",
      version: "1",
      description:
        "Every answer carries X-Request-Id. Times are RFC 3339 UTC, sizes bytes, durations milliseconds.",
    },
    security: SECURITY,
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "The API token" },
        session: {
          type: "apiKey",
          in: "cookie",
          name: SESSION_COOKIE,
          description:
            "Set by POST /api/auth/session. Changes also need the Origin of this server and X-Ops-CSRF: 1.",
        },
        totp_session: {
          ...{ type: "apiKey", in: "cookie", name: TOTP_COOKIE },
          description: `Set by POST ${VERIFY_PATH}. Needed on a server with TOTP, or else the next.`,
        },
        totp_code: {
          ...{ type: "apiKey", in: "header", name: "X-Ops-TOTP" },
          description:
            "A fresh code of 6 digits, good for one request. It decides where there is the cookie too.",
        },
      },
      schemas: Object.fromEntries(Object.entries(COMPONENTS).map(([name, shape]) => [name, shape.schema])),
    },
  };
}

function operation(route: ServerRoute): Schema {
  const parameters = [...pathParameters(route), ...queryParameters(route)];
  return {
    operationId: operationId(route),
    summary: route.summary,
    description: route.description,
    ...(parameters.length > 0 && { parameters }),
    ...requestBody(route),
    responses: { [route.answer.status]: success(route), ...failures(route) },
  };
}

/** `GET /api/buckets/{bucket_id}/runs` is `get_buckets_bucket_id_runs`. */
function operationId({ method, path }: ServerRoute): string {
  const words = path.replace(/^\/api\//, "").match(/\w+/g) ?? [];
  return [method.toLowerCase(), ...words].join("_");
}

function pathParameters({ path }: ServerRoute): Schema[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => ({
    name,
    in: "path",
    required: true,
    description: PARAMETERS[name],
    schema: { type: "string" },
  }));
}

function queryParameters({ query = {} }: ServerRoute): Schema[] {
  return Object.entries(query).map(([name, shape]) => {
    const { description, ...schema } = shape.schema;
    return { name, in: "query", required: shape.absent === undefined, description, schema };
  });
}

function requestBody({ body, upload }: ServerRoute): Schema {
  if (body) {
    const required = "required" in body.schema;
    return { requestBody: { required, content: { "application/json": { schema: body.schema } } } };
  }
  const binary = upload?.map((type) => [type, { schema: { type: "string", format: "binary" } }]);
  return binary ? { requestBody: { required: true, content: Object.fromEntries(binary) } } : {};
}

function success({ answer: { description, shape, type } }: ServerRoute): Schema {
  const schema = shape?.schema ?? { type: type === "application/json" ? "object" : "string" };
  const media = shape ? "application/json" : type;
  return { description, ...(media !== undefined && { content: { [media]: { schema } } }) };
}

function failures(route: ServerRoute): Schema {
  const byStatus = new Map<number, FailureCode[]>();
  for (const code of new Set([...commonFailures(route), ...(route.failures ?? [])])) {
    const status = STATUS[code] ?? 500;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const content = { "application/json": { schema: component("Error").schema } };
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [status, { description: codes.join(", "), content }]),
  );
}

/** What any request may get because of the order of checks in front of the handlers. */
function commonFailures({ method, path, body }: ServerRoute): FailureCode[] {
  return [
    "invalid_request",
    "unauthorized",
    ...(method === "GET" ? [] : (["csrf_failed"] as const)),
    ...(path === VERIFY_PATH ? [] : (["totp_required"] as const)),
    ...(body ? (["payload_too_large", "unsupported_media_type"] as const) : []),
    "rate_limited",
    "internal",
    "shutting_down",
  ];
}
