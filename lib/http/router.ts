import { Failure, type FailureCode, type Problem } from "../core/errors.ts";
import { check, type Infer, object, type Shape } from "../core/shape.ts";
import { type Answer, type HttpRequest, invalidRequest, readJson } from "./message.ts";

/** The parameters of a query, by name; each is a string, an integer or a boolean. */
export type QueryFields = Record<string, Shape<unknown>>;

/** A request that was understood: what a handler works with. */
export interface Call<Q extends QueryFields, B> {
  request: HttpRequest;
  /** The `{…}` parts of the path, decoded. */
  params: Readonly<Record<string, string>>;
  query: { [K in keyof Q]: Infer<Q[K]> };
  body: B;
}

/**
 * One entry of a route table: the source for the router, for the checks of what comes in and for openapi.yaml.
 * `C` is what the handlers of a table need besides the request.
 */
export interface Route<C, Q extends QueryFields = QueryFields, B = unknown> {
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** Literal parts compare exactly; a part such as `{run_id}` takes any name, `{path*}` at the end all that follow. */
  path: string;
  summary: string;
  description?: string;
  query?: Q;
  body?: Shape<B>;
  /** Media types of a body that the handler reads by itself. */
  upload?: readonly string[];
  /**
   * What it answers when all is well; without a shape, the body is of `type` (`example` is one) or empty. With `ranges`
   * it is a download, which also answers 206, 304 and `range_not_satisfiable`.
   */
  answer: {
    status: number;
    description: string;
    shape?: Shape<unknown>;
    type?: string;
    example?: string;
    ranges?: true;
  };
  /** What it may fail with besides what every route may. */
  failures?: readonly FailureCode[];
  handle(call: Call<Q, B>, context: C): Promise<Answer>;
}

type Entry = Pick<Route<never>, "method" | "path">;

/** A route with its path in parts: literal text, or the name that a part is given. */
interface Known<R> {
  route: R;
  parts: { literal?: string; name: string }[];
  /** The name that all further parts together are given. */
  rest: string | undefined;
}

/** The route of a request, with the `{…}` parts of its path. */
export interface Found<R> {
  readonly route: R;
  readonly params: Readonly<Record<string, string>>;
}

/** A list of routes, made ready to be searched. */
interface Table<R> {
  /** By how many parts a path has: the routes that it can be. The last is for all that have more. */
  byParts: Known<R>[][];
  /** What was found of late, by path: who follows something asks the same again and again. */
  found: Map<string, Found<R>>;
}

const TABLES = new WeakMap<readonly Entry[], Table<Entry>>();
const MOST_FOUND = 1_000;
/** What is kept has at most so many letters, its query included: a part of a text keeps the whole text. */
const KEPT_LENGTH = 200;

/** Finds the route of a request: first match of a list. Throws `not_found`, or `method_not_allowed` with what is. */
export function findRoute<R extends Entry>(routes: readonly R[], request: HttpRequest): Found<R> {
  const method = request.method === "HEAD" ? "GET" : request.method;
  const table = tableOf(routes);
  const known = table.found.get(request.path);
  if (known?.route.method === method) return known;
  const found = search(table, request, method);
  if (table.found.size >= MOST_FOUND) table.found.clear();
  if (request.path.length + request.query.length <= KEPT_LENGTH) table.found.set(request.path, found);
  return found;
}

function search<R extends Entry>({ byParts }: Table<R>, request: HttpRequest, method: string): Found<R> {
  const given = request.path.split("/");
  const allowed: string[] = [];
  for (const known of byParts[Math.min(given.length, byParts.length - 1)] ?? []) {
    const params = match(known, given);
    if (!params) continue;
    if (known.route.method === method) return { route: known.route, params: Object.freeze(params) };
    allowed.push(...(known.route.method === "GET" ? ["GET", "HEAD"] : [known.route.method]));
  }
  if (allowed.length > 0) throw methodNotAllowed(request, allowed);
  throw new Failure("not_found", "there is nothing at this path");
}

function tableOf<R extends Entry>(routes: readonly R[]): Table<R> {
  const known = TABLES.get(routes) as Table<R> | undefined;
  if (known) return known;
  const all = routes.map(takeApart);
  const longest = Math.max(...all.map(({ parts }) => parts.length));
  const byParts = Array.from({ length: longest + 2 }, (_, count) =>
    all.filter(({ parts, rest }) => (rest === undefined ? parts.length === count : parts.length < count)),
  );
  const table: Table<R> = { byParts, found: new Map() };
  TABLES.set(routes, table);
  return table;
}

function takeApart<R extends Entry>(route: R): Known<R> {
  const words = route.path.split("/");
  const rest = /^\{(\w+)\*\}$/.exec(words.at(-1) ?? "")?.[1];
  const parts = (rest === undefined ? words : words.slice(0, -1)).map((word) => {
    const name = /^\{(\w+)\}$/.exec(word)?.[1];
    return name === undefined ? { literal: word, name: "" } : { name };
  });
  return { route, parts, rest };
}

/** Nothing is normalised: an encoded letter, a doubled slash or another case is another path. */
function match<R>({ parts, rest }: Known<R>, given: readonly string[]): Record<string, string> | undefined {
  for (let at = 0; at < parts.length; at++) {
    const { literal } = parts[at] as Known<R>["parts"][number];
    if (literal !== undefined && literal !== given[at]) return undefined;
  }
  const params: Record<string, string> = {};
  for (let at = 0; at < parts.length; at++) {
    const { literal, name } = parts[at] as Known<R>["parts"][number];
    if (literal !== undefined) continue;
    const value = decodePart(given[at] as string, NO_NAME);
    if (value === undefined) return undefined;
    params[name] = value;
  }
  if (rest === undefined) return params;
  const values = given.slice(parts.length).map((part) => decodePart(part, NO_NAME_IN_PATH));
  return values.includes(undefined) ? undefined : { ...params, [rest]: values.join("/") };
}

/** The failure for a known path with another method. */
export function methodNotAllowed(request: HttpRequest, allowed: string[]): Failure {
  const allow = allowed.join(", ");
  return new Failure("method_not_allowed", `this path takes ${allow}, not ${request.method}`, { details: { allow } });
}

const NO_NAME = /^\.{0,2}$|[/\\\x00-\x1f\x7f]/;
/** Files may have names with a backslash. */
const NO_NAME_IN_PATH = /^\.{0,2}$|[/\x00-\x1f\x7f]/;

function decodePart(part: string, refused: RegExp): string | undefined {
  if (/^[\w-]+$/.test(part)) return part;
  try {
    const text = decodeURIComponent(part);
    return refused.test(text) ? undefined : text;
  } catch {
    return undefined;
  }
}

const NO_QUERY: QueryFields = {};

/** Checks query and body against the route and carries it out. Throws `invalid_request` and what the body rules say. */
export function callRoute<C>(found: Found<Route<C>>, request: HttpRequest, context: C): Promise<Answer> {
  const { route, params } = found;
  const query = queryOf(route.query ?? NO_QUERY, request.query);
  const handle = (body?: unknown) => route.handle({ request, params, query, body }, context);
  return route.body ? readJson(request, route.body).then(handle) : handle();
}

/** The query that was given last for these fields: who follows something asks the same again and again. */
const LAST = new WeakMap<QueryFields, { text: string; values: Readonly<Record<string, unknown>> }>();

function queryOf(fields: QueryFields, text: string): Readonly<Record<string, unknown>> {
  const last = LAST.get(fields);
  if (last?.text === text) return last.values;
  const values = Object.freeze(parseQuery(fields, text));
  LAST.set(fields, { text, values });
  return values;
}

/** The most values that a query may have, and the most names that a list with commas in one of them may have. */
export const MOST_VALUES = 100;

function parseQuery(fields: QueryFields, text: string): Record<string, unknown> {
  const problems: Problem[] = [];
  const values = new Map<string, unknown>();
  const given = new URLSearchParams(text);
  if (given.size > MOST_VALUES) throw new Failure("invalid_request", `the query has more than ${MOST_VALUES} values`);
  for (const [name, value] of given) {
    if (values.has(name)) problems.push({ path: name, message: "is given twice" });
    values.set(name, typed(Object.hasOwn(fields, name) ? fields[name] : undefined, value));
  }
  const checked = check(shapeOf(fields), Object.fromEntries(values));
  if (!checked.ok) problems.push(...checked.problems);
  if (!checked.ok || problems.length > 0) throw invalidRequest(problems);
  return checked.value;
}

const QUERIES = new WeakMap<QueryFields, Shape<Record<string, unknown>>>();

/** Made once: a query is checked for every request. */
function shapeOf(fields: QueryFields): Shape<Record<string, unknown>> {
  const shape = QUERIES.get(fields) ?? object(fields);
  QUERIES.set(fields, shape);
  return shape;
}

/** What does not look like the wanted type stays text, which the shape then refuses with its own sentence. */
function typed(shape: Shape<unknown> | undefined, text: string): unknown {
  if (shape?.schema.type === "integer" && /^-?\d{1,15}$/.test(text)) return Number(text);
  if (shape?.schema.type === "boolean" && (text === "true" || text === "false")) return text === "true";
  return text;
}
