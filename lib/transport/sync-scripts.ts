import { readFileSync } from "node:fs";
import { PROGRAM_ROOT } from "../core/self.ts";

/**
 * The shell scripts that run on workers, each a whole of its own: POSIX sh with coreutils, findutils and tar, or with
 * busybox. Their sources are in lib/transport/scripts; `common.sh` goes in front of each.
 */
export type ScriptName = "ask" | "receive" | "runner";

const texts = new Map<ScriptName, string>();

/** The text of a script. */
export function scriptText(name: ScriptName): string {
  const text = texts.get(name) ?? `#!/bin/sh\n${source("common")}\n${source(name)}`;
  texts.set(name, text);
  return text;
}

function source(name: string): string {
  return readFileSync(`${PROGRAM_ROOT}lib/transport/scripts/${name}.sh`, "utf8");
}
