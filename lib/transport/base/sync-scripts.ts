import { readFileSync } from "node:fs";
import { PROGRAM_ROOT } from "../../core/self.ts";

/**
 * The shell scripts that run on workers, each a whole of its own: POSIX sh with coreutils, findutils and tar, or with
 * busybox. Their sources are in lib/transport/scripts.
 */
const SOURCES = {
  way: ["way"],
  ask: ["way", "ask"],
  compare: ["way", "compare"],
  receive: ["common", "way", "receive"],
  settle: ["common", "settle"],
  runner: ["common", "way", "runner"],
  facts: ["facts"],
  uptime: ["uptime"],
  sysstat: ["sysstat"],
  discard: ["common", "way", "discard"],
  vacate: ["common", "vacate"],
  doctor: ["common", "doctor"],
} as const;
/** The name of a script. */
export type ScriptName = keyof typeof SOURCES;

const texts = new Map<ScriptName, string>();
const shortTexts = new Map<ScriptName, string>();

/** The text of a script. */
export function scriptText(name: ScriptName): string {
  const text = texts.get(name) ?? SOURCES[name].map(source).join("\n");
  texts.set(name, text);
  return text;
}

/** The text of a script without comments and indentation: a worker's shell reads it byte by byte. */
export function shortText(name: ScriptName): string {
  const text = shortTexts.get(name) ?? scriptText(name).replace(/^\s*(#.*\n)?/gm, "");
  shortTexts.set(name, text);
  return text;
}

function source(name: string): string {
  return readFileSync(`${PROGRAM_ROOT}lib/transport/scripts/${name}.sh`, "utf8");
}
