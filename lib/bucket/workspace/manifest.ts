import { plainDecimal } from "../../codec/config/number.ts";
import { validateGlob } from "../../codec/glob.ts";
import type { FailureCode } from "../../core/errors.ts";
import {
  check,
  described,
  type Infer,
  integer,
  isObject,
  join,
  list,
  oneOf,
  optional,
  otherwise,
  record,
  refined,
  type Shape,
  string,
  typeName,
  withDefault,
} from "../../core/shape.ts";
import { type CatalogHook, HOOK_EVENTS } from "../base/model.ts";
import { blank, cpu, fields, line, memory, NAME, NAME_RULE, name, SCHEMA_KEY } from "../base/names.ts";
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
  {
    job: described(optional(blank(name)), "The job that comes before this one"),
    hook: described(optional(blank(name)), "A hook of that job"),
    config: described(withDefault(config(), {}), "min_version and max_version of that job, and what its hook reads"),
  },
  { command: "hook" },
);
const HOOK_SHAPE = fields({
  executed_on: described(list(oneOf(...HOOK_EVENTS), { min: 1 }), "The events on which the script runs"),
  demands: described(optional(DEMANDS), "A hook of another job, which is deployed before this job"),
});
const RESOURCES = fields({
  memory: described(otherwise(bounds(memory), UNBOUNDED.memory), "What the job may be given, such as 512 mb or 2 gb"),
  cpu: described(otherwise(bounds(cpu), UNBOUNDED.cpu), "What the job may be given, such as 500 mhz or 2 ghz"),
  ports: described(otherwise(ports(), new Map()), "By name: {} for a number from the pool, or a fixed number"),
});
const TOLERATE = fields({
  unreachable: described(withDefault(share(), NO_SHARE), "The share of the allocations that may be unreachable in a rollout"),
});

const MANIFEST = fields(
  {
    $schema: SCHEMA_KEY,
    version: described(withDefault(line(100), ""), "Such as 1.2.3 or 2.0-rc1; needed by jobs that demand or are demanded"),
    after: described(withDefault(list(name), []), "Jobs that are deployed in an earlier wave than this one"),
    selectors: described(withDefault(list(blank(name)), []), "A worker must carry all of these labels (default: the job's name)"),
    max_concurrent_upgrades: described(positive(Number.MAX_SAFE_INTEGER, 1), "Width of the batches of all but first starts"),
    max_concurrent_starts: described(withDefault(integer(), 0), "Width of the batches of first starts; 0 means all at once"),
    min_allocations_count: described(withDefault(integer({ min: 0 }), 0), "With fewer workers the build fails"),
    restart_policy: described(withDefault(oneOf("always", "reload", "never"), "always"), "What a change does to a running job"),
    restart_globs: described(withDefault(list(glob()), []), "With reload: files whose change needs a restart"),
    drift_ignore: described(withDefault(list(glob()), []), "Files that the job itself changes on its workers"),
    resources: described(otherwise(RESOURCES, UNBOUNDED), "Memory, cpu and ports"),
    hooks: described(otherwise(hooks(), []), "By name: when the script _hooks/<name>.py, .ts or .js runs"),
    certs: described(withDefault(certs(), {}), "By name: certificates that the job gets in certs/"),
    health_check: described(optional(healthCheck()), "How ops finds out that the job is well"),
    lifecycle_timeout_seconds: described(positive(86_400, 900), "For start, stop, restart and reload on a worker"),
    on_failure: described(withDefault(oneOf("stop", "restore"), "stop"), "What follows a batch that is not well"),
    secret_mode: described(withDefault(oneOf("0600", "0640", "0644"), "0600"), "The mode of rendered files with secrets"),
    tolerate: described(withDefault(TOLERATE, { unreachable: NO_SHARE }), "What a rollout may pass over"),
  },
  { update_parallel_count: "max_concurrent_upgrades", deploy_parallel_count: "max_concurrent_starts", commands: "hooks" },
);

/** The JSON Schema of manifest.json. */
export const MANIFEST_SCHEMA = {
  ...MANIFEST.schema,
  if: { properties: { restart_globs: { minItems: 1 } }, required: ["restart_globs"] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { properties: { restart_policy: { const: "reload" } }, required: ["restart_policy"] },
};

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
 * Checks the parsed manifest.json of a job; undefined when it cannot be used. Versions, demands and `after` are judged
 * when all jobs are known. Failures: `ErrInvalidManifest`, `ErrInvalidHookConfiguration`, `ErrPortKeyFormat`,
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
    /** The jobs that come before this one, beside those that its hooks demand. */
    after: given.after,
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
  const all = record(HOOK_SHAPE);
  return refined({ ...all, schema: { ...all.schema, propertyNames: name.schema } }, (given, path, report) => {
    const found = new Map<string, CatalogHook>();
    for (const [written, hook] of Object.entries(given)) {
      const own = written.toLowerCase();
      if (!NAME.test(own)) report(join(path, written), `expected ${NAME_RULE} as name`);
      if (own === "ops") report(join(path, written), "is the name of the library beside every script: use another name");
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
function bounds(amount: Shape<number>): Shape<Bounds> {
  const both = fields({
    min: described(otherwise(amount, 0), "At least this much"),
    max: described(otherwise(amount, 0), "At most this much; what the job reserves (default: min)"),
  });
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
