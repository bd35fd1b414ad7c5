import { el, facts } from "./dom.js";
import { duration, size, status, words } from "./format.js";
import { outputGroups } from "./outputs.js";
import { planOf } from "./plan.js";
import { plainTable } from "./table.js";

const STATES = new Set(["outcome", "status", "action", "rollout", "gate", "health"]);

/** The outcome of a run for people: a form of its own where there is one, else what its fields say. */
export function resultOf({ kind, params, result }) {
  if (result === null) return el("p", { class: "notice" }, "It left no result.");
  if (kind === "deploy" && params.dry_run) return planOf(result);
  if (kind === "deploy" && result.jobs) return deployResult(result);
  if (kind === "run_command" && Array.isArray(result.workers)) return outputGroups(result.workers);
  if (kind.startsWith("worker_") && result.workers)
    return dataOf({
      ...result,
      workers: result.workers.map(({ facts, uptime, sysstat, ...one }) => ({
        ...one,
        ...(facts ?? uptime ?? sysstat),
      })),
    });
  return dataOf(result);
}

function deployResult({ jobs, reconciled, steps = [], update_seq }) {
  const rows = jobs.flatMap(({ job, outcome, reason, allocations }) =>
    allocations.length === 0
      ? [{ job, worker: "", action: "", outcome, error: reason }]
      : allocations.map((one) => ({
          ...one,
          job,
          error: one.error ?? (outcome === "failed" ? reason : null),
        })),
  );
  const columns = [
    { key: "job", label: "Job" },
    { key: "worker", label: "Worker" },
    { key: "action", label: "Action" },
    { key: "outcome", label: "Outcome", cell: (row) => status(row.outcome) },
    { key: "error", label: "Why" },
  ];
  return el(
    "div",
    {},
    plainTable("Jobs", columns, rows),
    reconciled.length === 0 ? null : plainTable("No longer here", columns, reconciled),
    el("details", {}, el("summary", {}, `Steps, update sequence ${update_seq}`), dataOf(steps, "Steps")),
  );
}

/** Any value: lists of objects as tables, objects as names and values. */
export function dataOf(value, title = "Result") {
  if (Array.isArray(value)) return listOf(value, title);
  if (value === null || typeof value !== "object") return el("span", {}, String(value ?? ""));
  const entries = Object.entries(value);
  const [plain, nested] = [
    entries.filter(([, one]) => !isNested(one)),
    entries.filter(([, one]) => isNested(one)),
  ];
  return el(
    "div",
    { class: "data" },
    facts(plain.map(([name, one]) => [words(name), cellOf(name, one)])),
    ...nested.map(([name, one]) => el("section", {}, el("h3", {}, words(name)), dataOf(one, words(name)))),
  );
}

function isNested(value) {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

function listOf(items, title) {
  if (items.every((item) => item === null || typeof item !== "object"))
    return el("ul", {}, ...items.map((item) => el("li", {}, String(item))));
  const keys = [...new Set(items.flatMap((item) => Object.keys(item ?? {})))];
  const columns = keys.map((key) => ({ key, label: words(key), cell: (row) => cellOf(key, row?.[key]) }));
  return plainTable(title, columns, items);
}

/** A value as people read it; the name tells its unit. */
function cellOf(name, value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string" && STATES.has(name)) return status(value);
  if (typeof value === "number" && name.endsWith("_bytes")) return size(value);
  if (typeof value === "number" && name.endsWith("_ms")) return duration(value);
  if (typeof value === "number" && /uptime_(s|seconds)$/.test(name)) return duration(value * 1000);
  if (typeof value === "object")
    return Object.keys(value).length === 0 ? "" : el("code", {}, JSON.stringify(value));
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}
