import { Failure, type FailureCode, type Problem } from "../core/errors.ts";
import { check, type Infer, object, type Shape } from "../core/shape.ts";
import { type Answer, type HttpRequest, invalidRequest, readJson } from "./message.ts";

/** The parameters of a query, by name; each is a string, an integer or a boolean. */
export type QueryFields = Record<string, Shape<unknown>>;

/** A request whose path, query and body were read and checked: what a handler works with. */
export interface Call<Q extends QueryFields, B> {
  request: HttpRequest;
  /** The `{…}` parts of the path, decoded. */
  params: Readonly<Record<string, string>>;
  query: { [K in keyof Q]: Infer<Q[K]> };
  /** The headers that the route names, by their names there. */
  headers: Readonly<Record<string, unknown>>;
  body: B;
}

/**
 * One route: the router, the checks of query and body, and openapi.yaml are made from it. `C` is what the handlers of a
 * table need besides the request.
 */
export interface Route<C, Q extends QueryFields = QueryFields, B = unknown> {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Literal parts compare exactly; a part such as `{run_id}` takes any name, `{path*}` at the end all that follow. */
  path: string;
  summary: string;
  description?: string;
  query?: Q;
  /** Headers of its own that the route takes; their names are as people write them. */
  headers?: QueryFields;
  body?: Shape<B>;
  /** Media types of a body that the handler reads by itself. */
  upload?: readonly string[];
  /**
   * The answer of success. Without a shape, the body is of `type` (`example` is one) or empty. With `ranges` the answer
   * is a download, which may also be 206, 304 and `range_not_satisfiable`.
   */
  answer: { status: number; description: string; shape?: Shape<unknown>; type?: string; example?: string; ranges?: true };
  /** The codes of failures besides those that every route has. */
  failures?: readonly FailureCode[];
  handle(call: Call<Q, B>, context: C): Promise<Answer>;
}

type RouteKey = Pick<Route<never>, "method" | "path">;

/** The route of a request, with the `{…}` parts of its path. */
interface FoundRoute<R> {
  readonly route: R;
  readonly params: Readonly<Record<string, string>>;
}

/** The first route of the list that fits a request. Throws `not_found`, or `method_not_allowed` with the allowed ones. */
export function findRoute<R extends RouteKey>(routes: readonly R[], request: HttpRequest): FoundRoute<R> {
  const method = request.method === "HEAD" ? "GET" : request.method;
  const given = request.path.split("/");
  const allowed: string[] = [];
  for (const route of routes) {
    const params = paramsOf(route.path, given);
    if (!params) continue;
    if (route.method === method) return { route, params };
    allowed.push(...(route.method === "GET" ? ["GET", "HEAD"] : [route.method]));
  }
  if (allowed.length > 0) throw methodNotAllowed(request, allowed);
  throw new Failure("not_found", "there is nothing at this path");
}

/**
 * The `{…}` parts of a path that fits a route's, else undefined. Nothing is normalised: an encoded letter, a doubled
 * slash or another case is another path.
 */
function paramsOf(pattern: string, given: readonly string[]): Record<string, string> | undefined {
  const words = pattern.split("/");
  const hasRest = pattern.endsWith("*}");
  if (hasRest ? given.length < words.length : given.length !== words.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, word] of words.entries()) {
    const isLast = hasRest && at === words.length - 1;
    const parts = given.slice(at, isLast ? undefined : at + 1);
    if (!word.startsWith("{") && word !== parts[0]) return undefined;
    if (!word.startsWith("{")) continue;
    const values = parts.map((part) => decodePart(part, isLast ? NO_NAME_IN_PATH : NO_NAME));
    if (values.includes(undefined)) return undefined;
    params[word.replace(/[{*}]/g, "")] = values.join("/");
  }
  return params;
}

/** Throws `method_not_allowed` for anything but GET and HEAD. */
export function requireReading(request: HttpRequest): void {
  if (request.method !== "GET" && request.method !== "HEAD") throw methodNotAllowed(request, ["GET", "HEAD"]);
}

/** The failure for a known path with another method. */
function methodNotAllowed(request: HttpRequest, allowed: string[]): Failure {
  const allow = allowed.join(", ");
  return new Failure("method_not_allowed", `this path takes ${allow}, not ${request.method}`, { details: { allow } });
}

const NO_NAME = /^\.{0,2}$|[/\\\x00-\x1f\x7f]/;
/** Files may have names with a backslash. */
const NO_NAME_IN_PATH = /^\.{0,2}$|[/\x00-\x1f\x7f]/;

function decodePart(part: string, refused: RegExp): string | undefined {
  try {
    const text = decodeURIComponent(part);
    return refused.test(text) ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Checks query, headers and body against the route and calls its handler. Throws `invalid_request` and what {@link readJson} throws. */
export async function callRoute<C>(found: FoundRoute<Route<C>>, request: HttpRequest, context: C): Promise<Answer> {
  const { route, params } = found;
  const query = readQuery(route.query ?? {}, request.query);
  const headers = readHeaders(route.headers ?? {}, request.headers);
  const body = route.body && (await readJson(request, route.body));
  return await route.handle({ request, params, query, headers, body }, context);
}

/** The most values that a query may have, and the most names that a list with commas in one of them may have. */
export const MOST_VALUES = 100;

function readQuery(fields: QueryFields, text: string): Record<string, unknown> {
  const problems: Problem[] = [];
  const values = new Map<string, unknown>();
  const given = new URLSearchParams(text);
  if (given.size > MOST_VALUES) throw new Failure("invalid_request", `the query has more than ${MOST_VALUES} values`);
  for (const [name, value] of given) {
    if (values.has(name)) problems.push({ path: name, message: "is given twice" });
    values.set(name, queryValue(Object.hasOwn(fields, name) ? fields[name] : undefined, value));
  }
  const checked = check(object(fields), Object.fromEntries(values));
  if (!checked.ok) problems.push(...checked.problems);
  if (!checked.ok || problems.length > 0) throw invalidRequest(problems);
  return checked.value;
}

function readHeaders(fields: QueryFields, given: HttpRequest["headers"]): Record<string, unknown> {
  const values = Object.entries(fields).flatMap(([name, shape]) => {
    const value = given[name.toLowerCase()];
    return value === undefined ? [] : [[name, queryValue(shape, String(value))]];
  });
  const checked = check(object(fields), Object.fromEntries(values));
  if (!checked.ok) throw invalidRequest(checked.problems);
  return checked.value;
}

/** The value that a text of the query, or of a header, stands for. A text of another form stays text, which the shape then refuses. */
function queryValue(shape: Shape<unknown> | undefined, text: string): unknown {
  if (shape?.schema.type === "integer" && /^-?\d{1,15}$/.test(text)) return Number(text);
  if (shape?.schema.type === "boolean" && (text === "true" || text === "false")) return text === "true";
  return text;
}
