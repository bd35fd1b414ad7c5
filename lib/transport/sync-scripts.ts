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
  let text = texts.get(name);
  if (text === undefined) texts.set(name, (text = `#!/bin/sh\n${source("common")}\n${source(name)}`));
  return text;
}

function source(name: string): string {
  return readFileSync(`${PROGRAM_ROOT}lib/transport/scripts/${name}.sh`, "utf8");
}
