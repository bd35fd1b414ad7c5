import path from "node:path";
import { pathToFileURL } from "node:url";

/**
 * Runs a script in this very process, as `node <file>` would; Node strips the types. Answers the exit code that the script
 * has set, 0 where it has set none, or 1 where it has thrown.
 */
export async function runHookFile(file: string): Promise<number> {
  const script = path.resolve(file);
  process.argv = [process.execPath, script];
  try {
    await import(pathToFileURL(script).href);
    return Number(process.exitCode ?? 0);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    return 1;
  }
}
