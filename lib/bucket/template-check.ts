import { checkTemplate } from "../codec/template/check.ts";
import { messageOf } from "../core/errors.ts";
import { decodeUtf8 } from "../core/plain-text.ts";
import type { CatalogFile } from "./catalog.ts";
import type { Database } from "./database.ts";
import type { Problems } from "./problems.ts";
import { KV_FUNCTIONS } from "./staging.ts";

/** The digests of the templates that the last build stored, each of which some build has parsed. */
export function parsedTemplates(db: Database): Set<string> {
  // The names are looked through in an index, without the contents of all files.
  const names = "SELECT job, path FROM job_files WHERE path LIKE '%.tpl'";
  const rows = db.tuples<[string, string]>(
    `SELECT path, sha256 FROM job_files WHERE (job, path) IN (${names})`,
  );
  return new Set(rows.filter(([path]) => isTemplate(path)).map(([, sha256]) => sha256));
}

/** Parses the templates of a job whose digest is not among `parsed` yet: `ErrInvalidTemplate` with line and column. */
export function checkTemplates(
  where: string,
  files: readonly CatalogFile[],
  parsed: Set<string>,
  problems: Problems,
): void {
  for (const { path, sha256, content } of files) {
    if (!isTemplate(path) || parsed.has(sha256)) continue;
    const [place, message] = problemOf(path, content) ?? [];
    if (place === undefined || message === undefined) parsed.add(sha256);
    else problems.error("ErrInvalidTemplate", `${where}/${path}`, place, message);
  }
}

/** True for a file that is rendered some time; what else is below `_prometheus/` never is. */
function isTemplate(path: string): boolean {
  return (
    path.endsWith(".tpl") && (!path.startsWith("_prometheus/") || path === "_prometheus/scrape.yaml.tpl")
  );
}

function problemOf(path: string, content: Uint8Array): [place: string, message: string] | undefined {
  const text = decodeUtf8(content);
  if (text === undefined) return ["", "is not UTF-8 text"];
  try {
    checkTemplate(path, text, KV_FUNCTIONS);
    return undefined;
  } catch (error) {
    return placed(messageOf(error).slice(`template: ${path}:`.length), text);
  }
}

/** Go counts columns in bytes from 0, people count characters from 1. */
function placed(found: string, text: string): [place: string, message: string] {
  const [, line = "1", bytes = "0", message = found] = /^(\d+):(\d+): (.*)$/s.exec(found) ?? [];
  const before = Buffer.from(text.split("\n")[Number(line) - 1] ?? "").subarray(0, Number(bytes));
  return [`line ${line}, column ${[...before.toString()].length + 1}`, message];
}
