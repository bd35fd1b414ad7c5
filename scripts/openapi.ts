import { writeFileSync } from "node:fs";
import { toYaml } from "../lib/codec/yaml.ts";
import { openApiDocument } from "../lib/server/openapi.ts";
import { ROUTES } from "../lib/server/routes/table.ts";

// Writes openapi.yaml from the route table; a test fails while the two differ.
writeFileSync(new URL("../openapi.yaml", import.meta.url), toYaml(openApiDocument(ROUTES)));
