import { Failure, messageOf } from "../core/errors.ts";
import { readGuarded } from "../core/files.ts";

/** Why a server is not started: one sentence that names the flag and what to do. */
export function refusal(message: string, cause?: unknown): Failure {
  return new Failure("usage", message, { cause });
}

/**
 * The mode bits that a file with a secret must not have: all users but owner and group may neither read nor write it.
 */
export const NOT_FOR_OTHERS = 0o006;

/** The text of a file that a flag names, unless its mode has one of the bits `refused`. Throws a {@link refusal}. */
export async function readNamedFile(flag: string, file: string, refused = 0): Promise<string> {
  try {
    return await readGuarded(file, refused);
  } catch (error) {
    if (error instanceof Failure) throw refusal(`${flag} ${file} cannot be used: ${error.message}`, error);
    throw refusal(`${flag} ${file} cannot be read: ${messageOf(error)}`, error);
  }
}
