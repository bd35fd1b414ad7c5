import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { inOneLine } from "../../core/plain-text.ts";
import type { Evidence } from "./evidence.ts";

/**
 * How it went for one allocation or worker. `changed`: what was to be done there has been done; `ok`: it was only to be
 * found healthy, and was; `skipped`: nothing was to be done; `not_started`: something else failed before.
 */
export const GRADES = ["failed", "unreachable", "cancelled", "not_started", "changed", "ok", "skipped"] as const;
/** One of {@link GRADES}, which go from the worst to the best. */
export type Grade = (typeof GRADES)[number];

/** Why something on a worker did not end well. */
export interface Trouble {
  grade: "failed" | "unreachable" | "cancelled";
  /** For a failed program this includes the last lines of its output, which no other part of a result repeats. */
  message: string;
  /** What was found there, where a health check failed. */
  evidence?: Evidence | null;
}

/** The trouble that a thrown value stands for. */
export function troubleOf(error: unknown): Trouble {
  const code = error instanceof Failure ? error.code : "internal";
  const grade = code === "unreachable" || code === "cancelled" ? code : "failed";
  const { reason = messageOf(error) } = (error instanceof ProgramFailure && error.details) || {};
  return { grade, message: reason };
}

class ProgramFailure extends Failure {
  declare readonly details: { reason: string };
}

/**
 * The failure of a program: its message has the first and the last line of `reason`; {@link troubleOf} answers all of
 * `reason`.
 */
export function failedWith(code: FailureCode, reason: string): Failure {
  return new ProgramFailure(code, inOneLine(reason), { details: { reason } });
}

/** The worst of some grades; `skipped` of none. */
export function worstOf(grades: readonly Grade[]): Grade {
  return GRADES.find((grade) => grades.includes(grade)) ?? "skipped";
}

/** How many have each grade. */
export function countGrades(grades: readonly Grade[]): Record<Grade, number> {
  const count = { failed: 0, unreachable: 0, cancelled: 0, not_started: 0, changed: 0, ok: 0, skipped: 0 };
  for (const grade of grades) count[grade]++;
  return count;
}

/** Counts in words, the good ones first and nothing that does not occur: `3 changed, 1 unreachable`. */
export function describeGrades(count: Record<Grade, number>): string {
  const parts = GRADES.toReversed().filter((grade) => count[grade] > 0);
  return parts.map((grade) => `${count[grade]} ${grade.replaceAll("_", " ")}`).join(", ") || "none";
}
