import { readFile } from "node:fs/promises";
import { Failure, messageOf } from "../core/errors.ts";

/** Why a server is not started: one sentence that names the flag and what to do. */
export function refusal(message: string, cause?: unknown): Failure {
  return new Failure("usage", message, { cause });
}

/** The text of a file that a flag names. Throws a {@link refusal}. */
export async function readNamedFile(flag: string, file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw refusal(`${flag} ${file} cannot be read: ${messageOf(error)}`, error);
  }
}
