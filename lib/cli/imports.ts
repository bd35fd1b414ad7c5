import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";
import { PROGRAM_ROOT } from "../core/self.ts";

const OURS = pathToFileURL(`${PROGRAM_ROOT}lib/`).href;

// From now on an import between modules of lib is resolved by its text alone, which names a file in full. Node would ask
// the file system and every package.json above about each of a thousand imports: two fifths of the time to load a server.
// Imports of packages stay with Node, and so do all imports of modules outside lib.
registerHooks({
  resolve(specifier, context, resolve) {
    if (!specifier.startsWith(".") || !context.parentURL?.startsWith(OURS)) return resolve(specifier, context);
    const { href } = new URL(specifier, context.parentURL);
    return { url: href, format: href.endsWith(".ts") ? "module-typescript" : "module", shortCircuit: true };
  },
});
