// Reads TypeScript as a syntax tree: Node blanks the types, acorn parses the rest.
import { stripTypeScriptTypes } from "node:module";
import { type AnyNode, type Program, parse } from "acorn";

/** A source without its types, and its syntax tree. Blanks stand for the types, so all positions and lines stay. */
export function syntaxOf(source: string): { text: string; program: Program } {
  const text = stripTypeScriptTypes(source);
  return { text, program: parse(text, { ecmaVersion: "latest", sourceType: "module" }) };
}

/** The nodes directly below a node, in the order of the syntax tree. */
export function childrenOf(node: AnyNode): AnyNode[] {
  return Object.values(node)
    .flat()
    .filter((value): value is AnyNode => typeof value?.type === "string");
}
