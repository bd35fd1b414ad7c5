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
/** Keys that the build itself writes to `ops/bucket`, where the port names of all jobs are kept too. */
const TAKEN_NAMES = new Set(["bucket_id", "jobs", "activejobs"]);

/** Whether a port may have this name (else `ErrPortKeyFormat`). */
export function isPortName(name: string): boolean {
  return PORT_NAME.test(name) && name.length <= 100;
}

/** `resources/ports` of a manifest: a fixed number, or null for one from the pool; names with mistakes are there too. */
export function ports(): Shape<Map<string, number | null>> {
  const number = integer({ min: 1, max: 65_535 });
  return refined(record(anything()), (given, path, report) => {
    const ports = new Map<string, number | null>();
    for (const [name, port] of Object.entries(given)) {
      const fromPool = isObject(port) && Object.keys(port).length === 0;
      if (!isPortName(name)) report(join(path, name), `expected ${PORT_RULE} as name`);
      else if (!fromPool && !check(number, port).ok)
        report(
          join(path, name),
          `expected {} for a port from the pool, or a number from 1 to 65535, found ${show(port)}`,
        );
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
  checkNames(requests, problems);
  const wanted = requests
    .toSorted((a, b) => (a.job < b.job ? -1 : 1))
    .flatMap(({ job, file, ports }) =>
      [...ports].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, fixed]) => ({ job, file, name, fixed })),
    );
  const numbers = new Numbers(pool, problems);
  for (const port of wanted) if (port.fixed === null) numbers.keep(port, stored.get(port.job)?.get(port.name));
  for (const port of wanted) if (port.fixed !== null) numbers.fix(port, port.fixed);
  for (const port of wanted) if (port.fixed === null) numbers.provide(port);
  const result: PortNumbers = new Map(requests.map(({ job }) => [job, new Map()]));
  for (const port of wanted) result.get(port.job)?.set(port.name, numbers.of(port));
  return result;
}

interface WantedPort {
  job: string;
  file: string;
  name: string;
}

/** Who holds which number. */
class Numbers {
  readonly #pool: PortPool;
  readonly #problems: Problems;
  readonly #holders = new Map<number, string>();
  readonly #given = new Map<string, number>();
  #next: number;

  constructor(pool: PortPool, problems: Problems) {
    this.#pool = pool;
    this.#problems = problems;
    this.#next = pool.min;
  }

  of(port: WantedPort): number {
    return this.#given.get(label(port)) ?? 0;
  }

  keep(port: WantedPort, number: number | undefined): void {
    if (number === undefined || number < this.#pool.min || number > this.#pool.max) return;
    if (!this.#holders.has(number)) this.#hold(port, number);
  }

  fix(port: WantedPort, number: number): void {
    const holder = this.#holders.get(number);
    if (holder !== undefined)
      this.#problems.error(
        "ErrPortCollision",
        port.file,
        `resources/ports/${port.name}`,
        `number ${number} is already taken by ${holder}`,
      );
    else this.#hold(port, number);
  }

  provide(port: WantedPort): void {
    if (this.#given.has(label(port))) return;
    while (this.#next <= this.#pool.max && this.#holders.has(this.#next)) this.#next++;
    if (this.#next <= this.#pool.max) this.#hold(port, this.#next);
    else
      this.#problems.error(
        "ErrPortRangeExhausted",
        port.file,
        `resources/ports/${port.name}`,
        `no number from ${this.#pool.min} to ${this.#pool.max} is free`,
      );
  }

  #hold(port: WantedPort, number: number): void {
    this.#holders.set(number, label(port));
    this.#given.set(label(port), number);
  }
}

function label(port: WantedPort): string {
  return `port ${port.name} of job ${port.job}`;
}

function checkNames(requests: readonly PortRequest[], problems: Problems): void {
  const owners = new Map<string, string>();
  for (const { job, file, ports } of requests)
    for (const name of ports.keys()) {
      const owner = owners.get(name);
      const taken = TAKEN_NAMES.has(name) ? "the bucket itself" : owner && `job ${owner}`;
      if (taken)
        problems.error("ErrPortNameCollision", file, `resources/ports/${name}`, `the name is used by ${taken} already`);
      else owners.set(name, job);
    }
}
