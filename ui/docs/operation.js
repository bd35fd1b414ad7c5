import { el } from "../dom.js";
import { schemaView, typeText } from "./schema.js";
import { tryForm } from "./try.js";

/** All about one operation: what it does, a form to try it, what it takes and what it answers. */
export function operationBody(operation, description) {
  const { parameters = [], requestBody, responses } = operation;
  return el(
    "div",
    { class: "body" },
    operation.description ? el("p", {}, operation.description) : null,
    ...(parameters.length > 0 ? [el("h3", {}, "Parameters"), parameterList(parameters, description)] : []),
    ...(requestBody ? [el("h3", {}, "Body"), ...contents(requestBody.content, description)] : []),
    el("h3", {}, "Try it"),
    tryForm(operation),
    el("h3", {}, "Answers"),
    ...Object.entries(responses).map(([status, response]) => answer(status, response, description)),
  );
}

function parameterList(parameters, description) {
  const items = parameters.map(({ name, in: place, required, description: what, schema }) =>
    el(
      "li",
      {},
      el("code", {}, name),
      el("span", { class: "type" }, ` ${typeText(schema, description)}, in the ${place}`),
      required ? el("span", { class: "required" }, " required") : null,
      what ? el("span", { class: "what" }, `: ${what}`) : null,
    ),
  );
  return el("ul", { class: "parameters" }, ...items);
}

function answer(status, { description: what, content }, description) {
  const title = el("summary", {}, el("strong", {}, status), ` ${what}`);
  if (!content) return el("p", { class: "answer" }, ...title.childNodes);
  const details = el("details", { class: "answer", open: status.startsWith("2") }, title);
  details.append(...contents(content, description));
  return details;
}

function contents(content, description) {
  return Object.entries(content).flatMap(([type, { schema, example, examples = {} }]) => [
    el("p", { class: "media" }, el("code", {}, type)),
    schema ? schemaView(schema, description) : "",
    ...(example === undefined ? [] : [exampleView("Example", example)]),
    ...Object.entries(examples).map(([name, one]) => exampleView(name, namedExample(one, description))),
  ]);
}

/** An example, or the one in the components of the description that it refers to. */
function namedExample({ $ref, value }, { components }) {
  return $ref ? components.examples?.[$ref.split("/").at(-1)]?.value : value;
}

function exampleView(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const attributes = { tabindex: "0", role: "region", "aria-label": `Example: ${name}` };
  return el("details", {}, el("summary", {}, name), el("pre", attributes, text));
}
