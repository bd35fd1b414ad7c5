import { layoutOf } from "../../bucket/base/layout.ts";
import { Failure } from "../../core/errors.ts";
import { readBounded } from "../../core/files.ts";

const LIMIT_BYTES = 256 * 1024;

/** The command that `ops run_command` runs where none is typed: workspace/command.sh. Throws `usage` without one. */
export async function readCommandFile(dir: string): Promise<string> {
  const bytes = await readBounded(layoutOf(dir).commandFile, LIMIT_BYTES);
  if (!bytes) throw new Failure("usage", "the command is missing: type it, or write it into workspace/command.sh");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Failure("failed", "workspace/command.sh is not UTF-8 text");
  }
}
