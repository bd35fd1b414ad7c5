import { validateGlob } from "../codec/glob.ts";
import { parseCpuMhz, parseMemoryMb } from "../codec/units.ts";
import type { FailureCode } from "../core/errors.ts";
import {
  anything,
  check,
  type Infer,
  integer,
  isObject,
  list,
  object,
  oneOf,
  optional,
  quote,
  record,
  type Shape,
  string,
  withDefault,
} from "../core/shape.ts";
import type { CatalogHook, CatalogJob, HealthCheck } from "./catalog.ts";
import { healthCheck, positive, undeclaredPorts } from "./health-check.ts";
import { line, NAME, NAME_RULE, name, quantity } from "./names.ts";
import { readPorts } from "./ports.ts";
import type { Problems } from "./problems.ts";

/** The events a hook may be run on (hook-runtime.md, Events). */
export const HOOK_EVENTS = [
  "post_build",
  "pre_deploy",
  "post_deploy",
  "job_control",
  "health_check",
  "cli",
  "after_allocation_started",
  "after_allocation_stopped",
] as const;

/** What a job may be given of a resource, in MB or MHz; 0 where nothing is said. */
export interface Bounds {
  min: number;
  max: number;
}

/** What a job's manifest.json says, checked and with the defaults in place. */
export interface Manifest {
  /** Empty where it has none. */
  version: string;
  /** A worker must carry all of them as labels. */
  selectors: string[];
  maxConcurrentUpgrades: number;
  maxConcurrentStarts: number;
  minAllocationsCount: number;
  restartPolicy: CatalogJob["restartPolicy"];
  restartGlobs: string[];
  memory: Bounds;
  cpu: Bounds;
  /** A fixed number, or null for one from the bucket's pool. */
  ports: Map<string, number | null>;
  /** By name. */
  hooks: CatalogHook[];
  healthCheck: HealthCheck | null;
  lifecycleTimeoutSeconds: number;
}

const LENIENT = { lenient: true, unknown: "warn" } as const;
const INVALID = "ErrInvalidManifest";
const CONFIG_DEPTH = 32;

const DEMANDS = object(
  { job: optional(blank(name())), hook: optional(blank(name())), config: withDefault(config(), {}) },
  { ...LENIENT, aliases: { command: "hook" } },
);

const HOOK = object(
  { executed_on: list(oneOf(...HOOK_EVENTS), { min: 1 }), demands: optional(DEMANDS) },
  LENIENT,
);

const MANIFEST = object(
  {
    version: withDefault(line(100), ""),
    selectors: withDefault(list(blank(name())), []),
    max_concurrent_upgrades: positive(Number.MAX_SAFE_INTEGER, 1),
    max_concurrent_starts: withDefault(integer(), 0),
    min_allocations_count: withDefault(integer({ min: 0 }), 0),
    restart_policy: withDefault(oneOf("always", "reload", "never"), "always"),
    restart_globs: withDefault(list(string({ max: 1_000 })), []),
    resources: withDefault(
      object(
        {
          memory: withDefault(bounds(parseMemoryMb), { min: 0, max: 0 }),
          cpu: withDefault(bounds(parseCpuMhz), { min: 0, max: 0 }),
          ports: withDefault(record(anything()), {}),
        },
        LENIENT,
      ),
      { memory: { min: 0, max: 0 }, cpu: { min: 0, max: 0 }, ports: {} },
    ),
    hooks: withDefault(record(HOOK), {}),
    certs: withDefault(record(anything()), {}),
    health_check: optional(healthCheck()),
    lifecycle_timeout_seconds: positive(86_400, 900),
    on_failure: withDefault(oneOf("stop", "restore"), "stop"),
    secret_mode: withDefault(oneOf("0600", "0640", "0644"), "0600"),
    tolerate: optional(
      object(
        {
          unreachable: optional(string({ pattern: /^(100|\d{1,2}(\.\d+)?)%$/, means: "a share such as 5%" })),
        },
        LENIENT,
      ),
    ),
  },
  {
    ...LENIENT,
    aliases: {
      update_parallel_count: "max_concurrent_upgrades",
      deploy_parallel_count: "max_concurrent_starts",
      commands: "hooks",
    },
  },
);

/**
 * Checks the parsed manifest.json of a job; undefined when it cannot be used. Versions and demands are judged when all
 * jobs are known. Failures: `ErrInvalidManifest`, `ErrInvalidHookConfiguration`, `ErrPortKeyFormat`,
 * `ErrInvalidManifestPort`.
 */
export function checkManifest(
  job: string,
  value: unknown,
  file: string,
  problems: Problems,
): Manifest | undefined {
  const before = problems.errors.length;
  const given = problems.take(codeOf, file, check(MANIFEST, value));
  if (given === undefined) return undefined;
  const ports = readPorts(given.resources.ports, file, problems);
  const hooks = hooksOf(given.hooks, file, problems);
  const manifest = manifestOf(job, given, ports, hooks);
  for (const { path, message } of undeclaredPorts(
    manifest.healthCheck,
    new Set(Object.keys(given.resources.ports)),
  ))
    problems.error(INVALID, file, path, message);
  for (const { path, message } of contradictions(given)) problems.error(INVALID, file, path, message);
  warnAboutUnused(given, file, problems);
  return problems.errors.length === before ? manifest : undefined;
}

function codeOf(path: string): FailureCode {
  return /^(hooks|commands)(\/|$)/i.test(path) ? "ErrInvalidHookConfiguration" : INVALID;
}

function manifestOf(
  job: string,
  given: Infer<typeof MANIFEST>,
  ports: Map<string, number | null>,
  hooks: CatalogHook[],
): Manifest {
  const selectors = new Set(given.selectors.filter((selector) => selector !== ""));
  return {
    version: given.version,
    selectors: selectors.size > 0 ? [...selectors] : [job],
    maxConcurrentUpgrades: given.max_concurrent_upgrades,
    maxConcurrentStarts: Math.max(0, given.max_concurrent_starts),
    minAllocationsCount: given.min_allocations_count,
    restartPolicy: given.restart_policy,
    restartGlobs: given.restart_globs,
    memory: given.resources.memory,
    cpu: given.resources.cpu,
    ports,
    hooks,
    healthCheck: given.health_check ?? null,
    lifecycleTimeoutSeconds: given.lifecycle_timeout_seconds,
  };
}

function hooksOf(given: Infer<typeof MANIFEST>["hooks"], file: string, problems: Problems): CatalogHook[] {
  const hooks = new Map<string, CatalogHook>();
  for (const [written, hook] of Object.entries(given)) {
    const own = written.toLowerCase();
    const wrong = (message: string) =>
      problems.error("ErrInvalidHookConfiguration", file, `hooks/${written}`, message);
    if (!NAME.test(own)) wrong(`expected ${NAME_RULE} as name`);
    if (hooks.has(own)) wrong("is there twice, in other capitals");
    hooks.set(own, {
      name: own,
      events: HOOK_EVENTS.filter((event) => hook.executed_on.includes(event)),
      demandJob: hook.demands?.job ?? "",
      demandHook: hook.demands?.hook ?? "",
      demandConfig: hook.demands?.config ?? {},
    });
  }
  return [...hooks.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** What is wrong between fields that are each right. */
function contradictions(given: Infer<typeof MANIFEST>): { path: string; message: string }[] {
  const found: { path: string; message: string }[] = [];
  if (given.restart_globs.length > 0 && given.restart_policy !== "reload")
    found.push({ path: "restart_globs", message: `needs "restart_policy": "reload"` });
  for (const [index, glob] of given.restart_globs.entries()) {
    const wrong = validateGlob(glob);
    if (wrong !== undefined)
      found.push({ path: `restart_globs/${index}`, message: `${quote(glob)}: ${wrong}` });
  }
  if (Object.keys(given.certs).length > 0)
    found.push({
      path: "certs",
      message: "this version of ops does not issue certificates: remove the field",
    });
  return found;
}

function warnAboutUnused(given: Infer<typeof MANIFEST>, file: string, problems: Problems): void {
  const unused = [
    given.on_failure !== "stop" && "on_failure",
    given.secret_mode !== "0600" && "secret_mode",
    given.tolerate?.unreachable !== undefined && "tolerate",
  ];
  for (const [name, hook] of Object.entries(given.hooks))
    if (hook.executed_on.includes("post_build"))
      problems.warn(file, `hooks/${name}`, "is on post_build, which this version of ops does not run");
  for (const field of unused)
    if (field) problems.warn(file, field, "is not used by this version of ops, which works as without it");
}

/** Minimum and maximum with units; a minimum without a maximum is both. */
function bounds(parse: (text: string) => number): Shape<Bounds> {
  const fields = object(
    { min: withDefault(quantity(parse), 0), max: withDefault(quantity(parse), 0) },
    LENIENT,
  );
  return {
    schema: fields.schema,
    check(value, path, report) {
      const { min, max } = fields.check(value, path, report);
      if (max > 0 && min > max) report(path, "min is above max");
      return { min, max: max > 0 ? max : min };
    },
  };
}

/** The same shape, but blank text is allowed and means nothing. */
function blank(shape: Shape<string>): Shape<string> {
  return {
    ...shape,
    check: (value, path, report) =>
      typeof value === "string" && value.trim() === "" ? "" : shape.check(value, path, report),
  };
}

/** The free-form object of a demand; deeper than 32 levels is refused. */
function config(): Shape<Record<string, unknown>> {
  return {
    schema: { type: "object", additionalProperties: true },
    check(value, path, report) {
      if (!isObject(value)) report(path, "expected an object");
      else if (depth(value, CONFIG_DEPTH + 1) > CONFIG_DEPTH)
        report(path, `is nested more than ${CONFIG_DEPTH} levels`);
      return value as Record<string, unknown>;
    },
  };
}

/** How deep a JSON value is nested, counted no further than `limit`. */
function depth(value: unknown, limit: number): number {
  if (limit === 0 || typeof value !== "object" || value === null) return 0;
  return 1 + Object.values(value).reduce((deepest, one) => Math.max(deepest, depth(one, limit - 1)), 0);
}
