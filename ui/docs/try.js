import { call, encoded } from "../api.js";
import { alertPlace, button, el, tell } from "../dom.js";

const SHOWN_CHARACTERS = 200_000;
/** What was typed for a parameter of the path is there in the other forms too. */
const typed = new Map();
let buckets;

/** A form that sends an operation with the present session, shows the answer, and gives the same as a curl command. */
export function tryForm(operation) {
  const { parameters = [], requestBody, method } = operation;
  const fields = parameters.map((parameter) => ({ ...parameter, field: fieldOf(parameter) }));
  const body = requestBody && bodyOf(requestBody.content);
  const sure = el("input", { type: "checkbox", required: true });
  const problem = alertPlace();
  const result = el("div.result", { "aria-live": "polite" });
  const asked = () => askedOf(operation, fields, body);
  const form = el(
    "form.try",
    fields.map(({ name, required, field }) =>
      el("label", el("span", el("code", name), required && " (required)"), field),
    ),
    body && el("label", el("span", body.label), body.field),
    method !== "GET" && el("label.tick", sure, "Really do this on this server"),
    el(
      "div.controls",
      el("button.primary", "Send"),
      button("Copy as curl", () => copyCurl(asked(), result)),
    ),
    ...[problem, result],
  );
  let sending = new AbortController();
  form.addEventListener("focusin", () => {
    for (const { name, in: place, field } of fields)
      if (place === "path" && field.value === "") field.value = typed.get(name) ?? "";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    sending.abort();
    sending = new AbortController();
    tell(problem, "");
    result.replaceChildren("Waiting for the answer …");
    try {
      result.replaceChildren(...(await send(asked(), sending.signal)));
    } catch (error) {
      if (error.name === "AbortError") return;
      result.replaceChildren();
      tell(problem, error.message);
    }
    sure.checked = false;
  });
  return form;
}

function fieldOf({ name, required, schema, example }) {
  const choices = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  if (choices)
    return el(
      "select",
      ["", ...choices].map((one) => el("option", one)),
    );
  const placeholder = schema.default ?? example ?? "";
  const list = name === "bucket_id" ? suggestBuckets() : null;
  const onchange = () => typed.set(name, field.value);
  const field = el("input", {
    required,
    placeholder,
    list,
    onchange,
    autocomplete: "off",
    spellcheck: "false",
  });
  return field;
}

/** The id of a list of the buckets, which is read once. */
function suggestBuckets() {
  if (buckets) return buckets.id;
  buckets = el("datalist", { id: "buckets" });
  document.body.append(buckets);
  const offer = ({ items }) =>
    buckets.append(
      ...items.map(({ id, project, name }) => el("option", { value: id }, `${project} / ${name}`)),
    );
  call("GET", "/api/buckets?limit=500").then(offer, () => {});
  return buckets.id;
}

function bodyOf(content) {
  const [[type, { schema, example }]] = Object.entries(content);
  const types = Object.keys(content);
  if (type !== "application/json") {
    const field = el("input", { type: "file", required: true });
    return { field, label: `A file: ${types.join(" or ")}`, types };
  }
  const needed = Object.fromEntries((schema.required ?? []).map((name) => [name, example?.[name] ?? null]));
  const field = el("textarea.code", { rows: 6, spellcheck: "false" }, JSON.stringify(needed, null, 2));
  return { field, label: "Body (JSON)", types };
}

/** The request that the form describes. */
function askedOf({ path, method }, fields, body) {
  const values = new Map(fields.map(({ name, field }) => [name, field.value.trim()]));
  const inQuery = fields.filter(({ in: place, field }) => place === "query" && field.value !== "");
  const query = new URLSearchParams(inQuery.map(({ name, field }) => [name, field.value]));
  const target = path.replace(/\{(\w+)\}/g, (_, name) =>
    name === "path" ? encoded(values.get(name)) : encodeURIComponent(values.get(name) ?? ""),
  );
  const inHeader = fields.filter(({ in: place, field }) => place === "header" && field.value !== "");
  const file = body?.field.files?.[0];
  const packed = file && body.types.find((type) => /gzip/.test(type) && /gz$/.test(file.name));
  const content = file ?? (body?.field.value?.trim() || undefined);
  return {
    method,
    target: query.size > 0 ? `${target}?${query}` : target,
    type: packed ?? body?.types[0],
    content,
    given: Object.fromEntries(inHeader.map(({ name, field }) => [name, field.value])),
  };
}

/** Sends it as the console does, with the session and the header against forged requests. */
async function send({ method, target, type, content, given }, signal) {
  const started = performance.now();
  const headers = content === undefined ? given : { ...given, "Content-Type": type };
  const answered = call(method, target, { headers, body: content, signal, as: "response" });
  const response = await answered.catch((error) => {
    if (!error.response) throw error;
    const text = JSON.stringify(error.body);
    return Object.assign(error.response, { blob: async () => new Blob([text]) });
  });
  const blob = await response.blob();
  const ms = Math.round(performance.now() - started);
  const kind = response.headers.get("Content-Type") ?? "";
  const id = response.headers.get("X-Request-Id");
  const line = `${response.status} ${response.statusText}, ${ms} ms, ${blob.size} bytes, request ${id}`;
  return [el(response.ok ? "p" : "p.why", line), shown(`Answer to request ${id}`, await textOf(blob, kind))];
}

function shown(label, text) {
  return el("pre", { tabindex: 0, role: "region", "aria-label": label }, text);
}

async function textOf(blob, kind) {
  if (blob.size === 0) return "(no body)";
  if (!/json|text|yaml/.test(kind)) return `(${kind}, not shown)`;
  const text = await blob.text();
  const nice = /json/.test(kind) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return nice.length > SHOWN_CHARACTERS ? `${nice.slice(0, SHOWN_CHARACTERS)}\n… (cut here)` : nice;
}

async function copyCurl({ method, target, type, content, given }, result) {
  const parts = [`curl -sS${method === "GET" ? "" : ` -X ${method}`} ${quoted(location.origin + target)}`];
  parts.push('-H "Authorization: Bearer $OPS_SERVE_TOKEN"');
  for (const [name, value] of Object.entries(given)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (content !== undefined) parts.push(`-H ${quoted(`Content-Type: ${type}`)}`);
  if (content instanceof File) parts.push(`--data-binary @${quoted(content.name)}`);
  else if (content !== undefined) parts.push(`--data-raw ${quoted(content)}`);
  const command = parts.join(" \\\n  ");
  const copied = el("p.hint", { role: "status" });
  result.replaceChildren(shown(`${method} ${target} as a curl command`, command), copied);
  try {
    await navigator.clipboard.writeText(command);
    copied.textContent = "Copied";
  } catch {
    copied.textContent = "The browser does not let it be copied: it is above";
  }
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
