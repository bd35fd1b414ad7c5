import { toYaml } from "../../codec/config/yaml.ts";
import { json, raw } from "../../http/message.ts";
import { route } from "../context.ts";

/** The description of the API itself. */
export const REFERENCE_ROUTES = [
  route({
    method: "GET",
    path: "/openapi.yaml",
    summary: "This description, as YAML",
    answer: { status: 200, description: "OpenAPI 3.1", type: "application/yaml" },
    async handle(_, { openApi }) {
      return raw("application/yaml; charset=utf-8", toYaml(openApi()));
    },
  }),
  route({
    method: "GET",
    path: "/openapi.json",
    summary: "This description, as JSON",
    answer: { status: 200, description: "OpenAPI 3.1", type: "application/json" },
    async handle(_, { openApi }) {
      return json(200, openApi());
    },
  }),
];
