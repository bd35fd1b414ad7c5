import { anything, check, integer, isObject, join, record, refined, type Shape, show } from "../../core/shape.ts";
import type { Problems } from "../base/problems.ts";
import type { PortPool } from "./bucket-conf.ts";

/** The ports a job declares: a fixed number, or null for one from the pool. */
interface PortRequest {
  job: string;
  /** The manifest, for problems. */
  file: string;
  ports: ReadonlyMap<string, number | null>;
}

/** Port numbers by job and name. */
export type PortNumbers = Map<string, Map<string, number>>;

const PORT_NAME = /^[a-z][a-z0-9_]*$/;
const PORT_RULE = "small letters, digits and _, the first a letter, at most 100,";
const PORT_VALUES = "{} for a port from the pool, or a number from 1 to 65535";
/** Keys that the build itself writes to `ops/bucket`, where the port names of all jobs are kept too. */
const TAKEN_NAMES = ["bucket_id", "jobs", "activejobs"];

/** Whether a port may have this name (else `ErrPortKeyFormat`). */
export function isPortName(name: string): boolean {
  return PORT_NAME.test(name) && name.length <= 100;
}

/** `resources/ports` of a manifest: a fixed number, or null for one from the pool; names with mistakes are there too. */
export function ports(): Shape<Map<string, number | null>> {
  const number = integer({ min: 1, max: 65_535 });
  const pool = { type: "object", maxProperties: 0 };
  const value = anything({ anyOf: [number.schema, pool] });
  return refined({ ...record(value, { key: PORT_NAME }), check: record(anything()).check }, (given, path, report) => {
    const ports = new Map<string, number | null>();
    for (const [name, port] of Object.entries(given)) {
      const fromPool = isObject(port) && Object.keys(port).length === 0;
      if (!isPortName(name)) report(join(path, name), `expected ${PORT_RULE} as name`);
      else if (!fromPool && !check(number, port).ok) report(join(path, name), `expected ${PORT_VALUES}, found ${show(port)}`);
      ports.set(name, typeof port === "number" ? port : null);
    }
    return ports;
  });
}

/**
 * Gives every declared port its number. Fixed numbers come first; a port from the pool keeps the number it had while
 * that lies in the pool, else it gets the lowest free one, jobs and names in alphabetical order. The numbers of jobs
 * and names that are gone are free at once. Two ports never share a number, not even on different workers
 * (`ErrPortCollision`), and no name is used by two jobs (`ErrPortNameCollision`).
 */
export function assignPorts(
  requests: readonly PortRequest[],
  stored: PortNumbers,
  pool: PortPool,
  problems: Problems,
): PortNumbers {
  const wanted = requests
    .toSorted((a, b) => (a.job < b.job ? -1 : 1))
    .flatMap(({ ports, ...request }) =>
      [...ports].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, fixed]) => ({ ...request, name, fixed })),
    );
  checkPortNames(requests, problems);
  const holders = new Map<number, string>();
  const given = new Map<string, number>();
  const labelOf = ({ job, name }: { job: string; name: string }) => `port ${name} of job ${job}`;
  const hold = (label: string, number: number) => {
    holders.set(number, label);
    given.set(label, number);
  };
  for (const port of wanted.filter(({ fixed }) => fixed === null)) {
    const number = stored.get(port.job)?.get(port.name) ?? 0;
    if (number >= pool.min && number <= pool.max && !holders.has(number)) hold(labelOf(port), number);
  }
  for (const { fixed, ...port } of wanted) {
    const holder = holders.get(fixed ?? 0);
    const taken = `number ${fixed} is already taken by ${holder}`;
    if (holder !== undefined) problems.error("ErrPortCollision", port.file, `resources/ports/${port.name}`, taken);
    else if (fixed !== null) hold(labelOf(port), fixed);
  }
  let next = pool.min;
  const none = `no number from ${pool.min} to ${pool.max} is free`;
  for (const port of wanted.filter((one) => one.fixed === null && !given.has(labelOf(one)))) {
    while (next <= pool.max && holders.has(next)) next++;
    if (next <= pool.max) hold(labelOf(port), next);
    else problems.error("ErrPortRangeExhausted", port.file, `resources/ports/${port.name}`, none);
  }
  const numbers: PortNumbers = new Map(requests.map(({ job }) => [job, new Map()]));
  for (const port of wanted) numbers.get(port.job)?.set(port.name, given.get(labelOf(port)) ?? 0);
  return numbers;
}

function checkPortNames(requests: readonly PortRequest[], problems: Problems): void {
  const owners = new Map(TAKEN_NAMES.map((name) => [name, "the bucket itself"]));
  for (const { job, file, ports } of requests)
    for (const name of ports.keys()) {
      const owner = owners.get(name);
      const message = `the name is used by ${owner} already`;
      if (owner !== undefined) problems.error("ErrPortNameCollision", file, `resources/ports/${name}`, message);
      else owners.set(name, `job ${job}`);
    }
}
