import { readFileSync } from "node:fs";
import { PROGRAM_ROOT } from "../core/self.ts";

/** A library that hook scripts import; it is staged beside them, in `_hooks/`. */
interface Helper {
  name: "ops.py" | "ops.ts";
  content: Buffer;
}

let helpers: readonly Helper[] | undefined;

/** The helper libraries (hook-runtime.md, Helper libraries). Their sources are in lib/hook/helpers. */
export function helperFiles(): readonly Helper[] {
  helpers ??= (["ops.py", "ops.ts"] as const).map((name) => {
    return { name, content: readFileSync(`${PROGRAM_ROOT}lib/hook/helpers/${name}`) };
  });
  return helpers;
}
