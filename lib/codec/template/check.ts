import { BUILTINS, SPECIAL_FORMS } from "./builtins.ts";
import { WORKSPACE_FUNCTIONS } from "./funcs.ts";
import { parseTemplate } from "./parse.ts";

/** Parses a template as `renderTemplate` does with functions of these names, and throws the same errors. */
export function checkTemplate(name: string, text: string, functions: readonly string[]): void {
  const known = new Set([...Object.keys({ ...BUILTINS, ...WORKSPACE_FUNCTIONS }), ...SPECIAL_FORMS, ...functions]);
  parseTemplate(name, text, (word) => known.has(word));
}
