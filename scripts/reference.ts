// Writes what is generated: openapi.yaml and docs/cli.md from the program's tables, and the modules that the pages of the
// console name for loading at once. Tests fail while they differ.
import { readFileSync, writeFileSync } from "node:fs";
import { COMMANDS } from "../lib/cli/main.ts";
import { toYaml } from "../lib/codec/config/yaml.ts";
import { openApiDocument } from "../lib/server/openapi.ts";
import { ROUTE_GROUPS } from "../lib/server/routes/table.ts";
import { commandReference } from "./cli-reference.ts";
import { modulesOf, withPreloads } from "./preloads.ts";

const write = (file: string, text: string) => writeFileSync(new URL(`../${file}`, import.meta.url), text);

write("openapi.yaml", toYaml(openApiDocument(ROUTE_GROUPS)));
write("docs/cli.md", commandReference(COMMANDS));
for (const [page, script] of [
  ["ui/index.html", "main.js"],
  ["ui/docs/index.html", "docs/docs.js"],
] as const)
  write(page, withPreloads(readFileSync(new URL(`../${page}`, import.meta.url), "utf8"), modulesOf(script)));
