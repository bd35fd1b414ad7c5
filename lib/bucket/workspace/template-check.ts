import { checkTemplate } from "../../codec/template/check.ts";
import { messageOf } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import type { CatalogFile } from "../base/model.ts";
import type { Problems } from "../base/problems.ts";
import { KV_FUNCTIONS } from "../kv/kv-access.ts";

/** Parses the templates of a job: `ErrInvalidTemplate` with line and column for each that is none. */
export function checkTemplates(where: string, files: readonly CatalogFile[], problems: Problems): void {
  for (const { path, content } of files.filter((file) => isTemplate(file.path))) {
    const found = problemOf(path, content);
    if (found) problems.error("ErrInvalidTemplate", `${where}/${path}`, ...found);
  }
}

/** True for a file that is rendered; below `_prometheus/` that is only the scrape template. */
function isTemplate(path: string): boolean {
  return path.endsWith(".tpl") && (!path.startsWith("_prometheus/") || path === "_prometheus/scrape.yaml.tpl");
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

/**
 * Splits an error into its place and its message. Go counts columns in bytes from 0; people count characters from 1.
 */
function placed(found: string, text: string): [place: string, message: string] {
  const [, line = "1", bytes = "0", message = found] = /^(\d+):(\d+): (.*)$/s.exec(found) ?? [];
  const before = Buffer.from(text.split("\n")[Number(line) - 1] ?? "").subarray(0, Number(bytes));
  return [`line ${line}, column ${[...before.toString()].length + 1}`, message];
}
