// Writes what is generated from the program's tables: openapi.yaml and docs/cli.md. Tests fail while they differ.
import { writeFileSync } from "node:fs";
import { COMMANDS } from "../lib/cli/main.ts";
import { toYaml } from "../lib/codec/config/yaml.ts";
import { openApiDocument } from "../lib/server/openapi.ts";
import { ROUTE_GROUPS } from "../lib/server/routes/table.ts";
import { commandReference } from "./cli-reference.ts";

const write = (file: string, text: string) => writeFileSync(new URL(`../${file}`, import.meta.url), text);

write("openapi.yaml", toYaml(openApiDocument(ROUTE_GROUPS)));
write("docs/cli.md", commandReference(COMMANDS));
