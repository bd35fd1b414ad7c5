import type { Layout } from "../../bucket/base/layout.ts";
import { explain } from "../../core/errors.ts";
import type { Launcher } from "../../core/spawn.ts";

/** What the doctor works with. */
export interface DoctorContext {
  layout: Layout;
  launcher: Launcher;
  signal: AbortSignal;
}

/** From the best to the worst. */
export const GRADES = ["ok", "warning", "problem"] as const;

/** One thing that was looked at. */
export interface Finding {
  /** `host`, `bucket` or `worker <host>`. */
  where: string;
  /** What was looked at, in one or two words. */
  check: string;
  grade: (typeof GRADES)[number];
  message: string;
  /** What to do about it; null where there is nothing to do. */
  advice: string | null;
}

/** Collects what is found in one place. */
export class Findings {
  readonly all: Finding[] = [];
  readonly #where: string;

  constructor(where: string) {
    this.#where = where;
  }

  ok(check: string, message: string): void {
    this.#add(check, "ok", message, null);
  }

  warn(check: string, message: string, advice: string): void {
    this.#add(check, "warning", message, advice);
  }

  problem(check: string, message: string, advice: string): void {
    this.#add(check, "problem", message, advice);
  }

  /** Looks at something; what it throws is a problem. */
  async look(check: string, advice: string, work: () => void | Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.problem(check, explain(error), advice);
    }
  }

  /** Says how much room a disk has. */
  disk(check: string, freeBytes: number, allBytes: number): void {
    const message = `${inGib(freeBytes)} of ${inGib(allBytes)} free`;
    if (freeBytes < LOW_BYTES) this.problem(check, message, "make room: what is written next may fail");
    else if (freeBytes < SHORT_BYTES) this.warn(check, message, "make room before it runs out");
    else this.ok(check, message);
  }

  #add(check: string, grade: Finding["grade"], message: string, advice: string | null): void {
    this.all.push({ where: this.#where, check, grade, message, advice });
  }
}

const GIB = 1024 ** 3;
const SHORT_BYTES = GIB;
const LOW_BYTES = GIB / 10;

function inGib(bytes: number): string {
  return `${(bytes / GIB).toFixed(1)} GiB`;
}
