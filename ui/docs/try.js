import { call, curlOf, encoded } from "../api.js";
import { alertPlace, button, el, tell } from "../dom.js";

const SHOWN_CHARACTERS = 200_000;
/** What was typed for a parameter of the path is there in the other forms too. */
const typed = new Map();

/** A form that sends an operation with the present session, shows the answer, and gives the same as a curl command. */
export function tryForm(operation) {
  const { parameters = [], requestBody, method } = operation;
  const fields = parameters.map((parameter) => ({ ...parameter, field: fieldOf(parameter) }));
  const body = requestBody && bodyOf(requestBody.content);
  const sure = el("input", { type: "checkbox", required: true });
  const problem = alertPlace();
  const result = el("div.result", { "aria-live": "polite" });
  const asked = () => askedOf(operation, fields, body);
  const copy = button("Copy as curl", async () => {
    const { target, content, headers } = asked();
    const command = curlOf(method, target, content, headers);
    result.replaceChildren(shown(`${method} ${target} as a curl command`, command));
    await navigator.clipboard?.writeText(command).catch(() => {});
  });
  const labels = [...fields, ...(body ? [body] : [])].map(({ name, required, field }) =>
    el("label", el("span", el("code", name), required && " (required)"), field),
  );
  const form = el(
    "form.try",
    labels,
    method !== "GET" && el("label.tick", sure, "Really do this on this server"),
    el("div.controls", el("button.primary", "Send"), copy),
    ...[problem, result],
  );
  form.addEventListener("focusin", () => {
    for (const { name, field } of fields) field.value ||= typed.get(name) ?? "";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tell(problem, "");
    result.replaceChildren("Waiting for the answer …");
    try {
      result.replaceChildren(...(await send(method, asked())));
    } catch (error) {
      result.replaceChildren();
      tell(problem, error.message);
    }
    sure.checked = false;
  });
  return form;
}

function fieldOf({ name, in: place, required, schema, example }) {
  const choices = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  if (choices)
    return el(
      "select",
      ["", ...choices].map((one) => el("option", one)),
    );
  const placeholder = schema.default ?? example;
  const onchange = () => place === "path" && typed.set(name, field.value);
  const field = el("input", { required, placeholder, onchange, autocomplete: "off", spellcheck: "false" });
  return field;
}

function bodyOf(content) {
  const types = Object.keys(content);
  const { schema, example } = content[types[0]];
  if (types[0] !== "application/json")
    return { field: el("input", { type: "file", required: true }), name: types.join(" or "), types };
  const needed = Object.fromEntries((schema.required ?? []).map((name) => [name, example?.[name] ?? null]));
  const field = el("textarea.code", { rows: 6, spellcheck: "false" }, JSON.stringify(needed, null, 2));
  return { field, name: "Body (JSON)", types };
}

/** The request that the form describes. */
function askedOf({ path }, fields, body) {
  const given = fields.filter(({ field }) => field.value.trim() !== "");
  const within = (where) =>
    given.filter(({ in: place }) => place === where).map(({ name, field }) => [name, field.value.trim()]);
  const query = new URLSearchParams(within("query"));
  const target = within("path").reduce(
    (filled, [name, value]) => filled.replace(`{${name}}`, () => encodedPart(name, value)),
    path,
  );
  const file = body?.field.files?.[0];
  const content = file ?? (body?.field.value.trim() || undefined);
  const packed = file && body.types.find((type) => /gzip/.test(type) && /gz$/.test(file.name));
  const headers = Object.fromEntries(within("header"));
  if (content !== undefined) headers["Content-Type"] = packed ?? body.types[0];
  return { target: query.size > 0 ? `${target}?${query}` : target, headers, content };
}

/** The slashes of a file's path may stand as they are. */
function encodedPart(name, value) {
  return name === "path" ? encoded(value) : encodeURIComponent(value);
}

/** Sends it as the console does, with the session and the header against forged requests. */
async function send(method, { target, headers, content: body }) {
  const started = performance.now();
  const answered = call(method, target, { headers, body, as: "response" });
  const response = await answered.catch((error) => error.response ?? Promise.reject(error));
  const text = await response.text();
  const ms = Math.round(performance.now() - started);
  const { status, statusText, ok, headers: about } = response;
  const id = about.get("X-Request-Id");
  const line = `${status} ${statusText}, ${ms} ms, request ${id}`;
  return [
    el(ok ? "p" : "p.why", line),
    shown(`Answer to request ${id}`, readable(text, about.get("Content-Type") ?? "")),
  ];
}

function readable(text, kind) {
  if (text !== "" && !/json|text|yaml/.test(kind)) return `(${kind}, not shown)`;
  const nice = /json/.test(kind) ? JSON.stringify(JSON.parse(text), null, 2) : text || "(no body)";
  return nice.length > SHOWN_CHARACTERS ? `${nice.slice(0, SHOWN_CHARACTERS)}\n… (cut here)` : nice;
}

function shown(label, text) {
  return el("pre", { tabindex: 0, role: "region", "aria-label": label }, text);
}
