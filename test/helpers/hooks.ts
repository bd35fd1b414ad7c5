import { existsSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";

/** A Python script that notes its environment, as a line of `trace` in the bucket's folder. What follows it runs then. */
export const RECORD = `import json, os, ops
with open("trace", "a") as trace:
    trace.write(json.dumps(dict(os.environ)) + "\\n")
`;

/** What one script noted, with each variable that it was told. */
export type Trace = Record<string, string>;

/** What the scripts of a bucket noted since the last call, oldest first. */
export function traces(dir: string): Trace[] {
  const file = path.join(dir, "trace");
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").trim().split("\n");
  rmSync(file);
  return lines.map((line) => JSON.parse(line) as Trace);
}

/** A field of hooks in a manifest: by name, the events. */
export function hooksOf(hooks: Record<string, string[]>): { hooks: Record<string, { executed_on: string[] }> } {
  return { hooks: Object.fromEntries(Object.entries(hooks).map(([name, events]) => [name, { executed_on: events }])) };
}
