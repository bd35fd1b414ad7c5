import { parseCpuMhz, parseMemoryMb, plainDecimal } from "../../codec/config/number.ts";
import { validateGlob } from "../../codec/glob.ts";
import type { FailureCode } from "../../core/errors.ts";
import {
  check,
  type Infer,
  integer,
  isObject,
  join,
  list,
  oneOf,
  optional,
  record,
  refined,
  type Shape,
  string,
  typeName,
  withDefault,
} from "../../core/shape.ts";
import { type CatalogHook, HOOK_EVENTS } from "../base/model.ts";
import { blank, fields, line, NAME, NAME_RULE, name, quantity } from "../base/names.ts";
import type { FileProblems } from "../base/problems.ts";
import { certRequests, certs, checkProbePorts, healthCheck, positive } from "./manifest-blocks.ts";
import { isPortName, ports } from "./ports.ts";

/** What a job may be given of a resource, in MB or MHz; 0 where nothing is said. */
export type Bounds = Record<"min" | "max", number>;

/** What a job's manifest.json says, checked and with the defaults in place. */
export type Manifest = ReturnType<typeof manifestOf>;

const CONFIG_DEPTH = 32;
const NO_SHARE = "0%";
const UNBOUNDED = { memory: { min: 0, max: 0 }, cpu: { min: 0, max: 0 }, ports: new Map<string, number | null>() };

const DEMANDS = fields(
  { job: optional(blank(name)), hook: optional(blank(name)), config: withDefault(config(), {}) },
  { command: "hook" },
);
const HOOK_SHAPE = fields({ executed_on: list(oneOf(...HOOK_EVENTS), { min: 1 }), demands: optional(DEMANDS) });
const RESOURCES = fields({
  memory: withDefault(bounds(parseMemoryMb), { min: 0, max: 0 }),
  cpu: withDefault(bounds(parseCpuMhz), { min: 0, max: 0 }),
  ports: withDefault(ports(), new Map()),
});
const TOLERATE = fields({ unreachable: withDefault(share(), NO_SHARE) });

const MANIFEST = fields(
  {
    version: withDefault(line(100), ""),
    selectors: withDefault(list(blank(name)), []),
    max_concurrent_upgrades: positive(Number.MAX_SAFE_INTEGER, 1),
    max_concurrent_starts: withDefault(integer(), 0),
    min_allocations_count: withDefault(integer({ min: 0 }), 0),
    restart_policy: withDefault(oneOf("always", "reload", "never"), "always"),
    restart_globs: withDefault(list(glob()), []),
    drift_ignore: withDefault(list(glob()), []),
    resources: withDefault(RESOURCES, UNBOUNDED),
    hooks: withDefault(hooks(), []),
    certs: withDefault(certs(), {}),
    health_check: optional(healthCheck()),
    lifecycle_timeout_seconds: positive(86_400, 900),
    on_failure: withDefault(oneOf("stop", "restore"), "stop"),
    secret_mode: withDefault(oneOf("0600", "0640", "0644"), "0600"),
    tolerate: withDefault(TOLERATE, { unreachable: NO_SHARE }),
  },
  { update_parallel_count: "max_concurrent_upgrades", deploy_parallel_count: "max_concurrent_starts", commands: "hooks" },
);

/** The manifest with the rules between fields; checks as many as it can where a manifest has other mistakes. */
const WHOLE: typeof MANIFEST = {
  ...MANIFEST,
  check(value, path, report) {
    const given = MANIFEST.check(value, path, report);
    if (!isObject(value)) return given;
    const { restart_policy: policy, restart_globs: globs, health_check: health } = given;
    if (globs.length > 0 && (policy === "always" || policy === "never"))
      report("restart_globs", `needs "restart_policy": "reload"`);
    checkProbePorts(health, given.resources.ports, report);
    return given;
  },
};

/**
 * Checks the parsed manifest.json of a job; undefined when it cannot be used. Versions and demands are judged when all
 * jobs are known. Failures: `ErrInvalidManifest`, `ErrInvalidHookConfiguration`, `ErrPortKeyFormat`,
 * `ErrInvalidManifestPort`.
 */
export function checkManifest(job: string, value: unknown, found: FileProblems): Manifest | undefined {
  const given = found.take(check(WHOLE, value), manifestCode);
  return given && manifestOf(job, given);
}

/** The names of the hooks of a manifest that may have mistakes elsewhere. */
export function hookNames(value: unknown): string[] {
  if (!isObject(value)) return [];
  return Object.entries(value)
    .filter(([key]) => /^(hooks|commands)$/i.test(key))
    .flatMap(([, hooks]) => (isObject(hooks) ? Object.keys(hooks) : []))
    .map((name) => name.toLowerCase())
    .filter((name) => NAME.test(name));
}

function manifestCode(path: string): FailureCode {
  if (/^(hooks|commands)(\/|$)/i.test(path)) return "ErrInvalidHookConfiguration";
  const [, port] = /^resources\/ports\/(.*)$/i.exec(path) ?? [];
  if (port === undefined) return "ErrInvalidManifest";
  return isPortName(port) ? "ErrInvalidManifestPort" : "ErrPortKeyFormat";
}

function manifestOf(job: string, given: Infer<typeof WHOLE>) {
  const selectors = new Set(given.selectors.filter((selector) => selector !== ""));
  return {
    /** Empty where the manifest has none. */
    version: given.version,
    /** A worker must carry all of them as labels. */
    selectors: selectors.size > 0 ? [...selectors] : [job],
    maxConcurrentUpgrades: given.max_concurrent_upgrades,
    maxConcurrentStarts: Math.max(0, given.max_concurrent_starts),
    minAllocationsCount: given.min_allocations_count,
    restartPolicy: given.restart_policy,
    restartGlobs: given.restart_globs,
    driftIgnore: given.drift_ignore,
    memory: given.resources.memory,
    cpu: given.resources.cpu,
    /** A fixed number, or null for one from the bucket's pool. */
    ports: given.resources.ports,
    /** By name. */
    hooks: given.hooks,
    /** By name. */
    certs: certRequests(job, given.certs),
    healthCheck: given.health_check ?? null,
    lifecycleTimeoutSeconds: given.lifecycle_timeout_seconds,
    onFailure: given.on_failure,
    secretMode: Number.parseInt(given.secret_mode, 8),
    tolerateUnreachable: Number.parseFloat(given.tolerate.unreachable),
  };
}

/** The hooks by their names, which compare without case. */
function hooks(): Shape<CatalogHook[]> {
  return refined(record(HOOK_SHAPE), (given, path, report) => {
    const found = new Map<string, CatalogHook>();
    for (const [written, hook] of Object.entries(given)) {
      const own = written.toLowerCase();
      if (!NAME.test(own)) report(join(path, written), `expected ${NAME_RULE} as name`);
      if (found.has(own)) report(join(path, written), "is there twice, in other capitals");
      found.set(own, hookOf(own, hook));
    }
    return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  });
}

function hookOf(name: string, given: Infer<typeof HOOK_SHAPE>): CatalogHook {
  return {
    name,
    events: HOOK_EVENTS.filter((event) => given.executed_on?.includes(event)),
    demandJob: given.demands?.job ?? "",
    demandHook: given.demands?.hook ?? "",
    demandConfig: given.demands?.config ?? {},
  };
}

function glob(): Shape<string> {
  return refined(string({ max: 1_000 }), (given, path, report) => {
    const wrong = typeof given === "string" ? validateGlob(given) : undefined;
    if (wrong !== undefined) report(path, wrong);
    return given;
  });
}

/** A part of all workers, in percent. */
function share(): Shape<string> {
  return string({ pattern: /^(100|\d{1,2}(\.\d{1,6})?)%$/, means: "a share such as 5%" });
}

/** Minimum and maximum with units; a minimum without a maximum is both. */
function bounds(parse: (text: string) => number): Shape<Bounds> {
  const both = fields({ min: withDefault(quantity(parse), 0), max: withDefault(quantity(parse), 0) });
  return refined(both, ({ min, max }, path, report) => {
    if (max > 0 && min > max) report(path, `min ${plainDecimal(min)} is above max ${plainDecimal(max)}`);
    return { min, max: max > 0 ? max : min };
  });
}

/** The free-form object of a demand; deeper than 32 levels is refused. */
function config(): Shape<Record<string, unknown>> {
  return {
    schema: { type: "object", additionalProperties: true },
    check(value, path, report) {
      if (!isObject(value)) report(path, `expected an object, found ${typeName(value)}`);
      else if (depth(value, CONFIG_DEPTH + 1) > CONFIG_DEPTH) report(path, `is nested more than ${CONFIG_DEPTH} levels`);
      return value as Record<string, unknown>;
    },
  };
}

/** How deep a JSON value is nested, counted no further than `limit`. */
function depth(value: unknown, limit: number): number {
  if (limit === 0 || typeof value !== "object" || value === null) return 0;
  return 1 + Object.values(value).reduce((deepest, one) => Math.max(deepest, depth(one, limit - 1)), 0);
}
