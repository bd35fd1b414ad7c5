import { request } from "../api.js";
import { el, tell } from "../dom.js";

const SHOWN_CHARACTERS = 200_000;
/** What was typed for a parameter is there in the other forms too. */
const typed = new Map();
const PATTERN = /\{(\w+)\}/g;

/** A form that sends an operation with the present session, shows the answer, and gives the same as a curl command. */
export function tryForm(operation) {
  const { parameters = [], requestBody, method } = operation;
  const fields = parameters.map((parameter) => ({ parameter, field: fieldOf(parameter) }));
  const body = bodyField(requestBody);
  const sure = el("input", { type: "checkbox", required: true });
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const result = el("div", { class: "result", "aria-live": "polite" });
  const copied = el("span", { role: "status" });
  const asked = () => askedOf(operation, fields, body);
  const form = el(
    "form",
    { class: "try" },
    ...fields.map(({ parameter, field }) => labelled(parameter, field)),
    body ? el("label", {}, body.label, body.field) : null,
    method === "GET" ? null : el("label", { class: "sure" }, sure, "Really do this on this server"),
    el(
      "div",
      { class: "controls" },
      el("button", { class: "primary" }, "Send"),
      el("button", { type: "button", onclick: () => copyCurl(asked(), copied, result) }, "Copy as curl"),
      copied,
    ),
    problem,
    result,
  );
  let sending = new AbortController();
  form.addEventListener("focusin", () => recall(fields));
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

function labelled({ name, required }, field) {
  return el("label", {}, el("span", {}, el("code", {}, name), required ? " (required)" : ""), field);
}

function fieldOf({ name, required, schema, example }) {
  const choices = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  if (choices)
    return el("select", {}, el("option", { value: "" }, ""), ...choices.map((one) => el("option", {}, one)));
  const placeholder = String(schema.default ?? example ?? "");
  const field = el("input", { required, placeholder, autocomplete: "off", spellcheck: "false" });
  if (name === "bucket_id") suggestBuckets(field);
  field.addEventListener("change", () => typed.set(name, field.value));
  return field;
}

/** Fills in what was typed in another form, where nothing is. */
function recall(fields) {
  for (const { parameter, field } of fields)
    if (parameter.in === "path" && field.value === "") field.value = typed.get(parameter.name) ?? "";
}

async function suggestBuckets(field) {
  field.setAttribute("list", "buckets");
  if (document.getElementById("buckets")) return;
  const list = el("datalist", { id: "buckets" });
  document.body.append(list);
  const { items } = await request("GET", "/api/buckets?limit=500").catch(() => ({ items: [] }));
  list.append(...items.map(({ id, project, name }) => el("option", { value: id }, `${project} / ${name}`)));
}

function bodyField(requestBody) {
  if (!requestBody) return null;
  const [[type, { schema, example }]] = Object.entries(requestBody.content);
  const types = Object.keys(requestBody.content);
  if (type !== "application/json")
    return {
      field: el("input", { type: "file", required: true }),
      label: `A file: ${types.join(" or ")}`,
      types,
    };
  const needed = Object.fromEntries((schema.required ?? []).map((name) => [name, example?.[name] ?? null]));
  const field = el("textarea", { rows: "6", spellcheck: "false" });
  field.value = JSON.stringify(needed, null, 2);
  return { field, label: "Body (JSON)", types };
}

/** The request that the form describes. */
function askedOf({ path, method }, fields, body) {
  const values = new Map(fields.map(({ parameter, field }) => [parameter.name, field.value.trim()]));
  const encoded = (name) => {
    const value = values.get(name) ?? "";
    return name === "path" ? value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(value);
  };
  const inQuery = fields.filter(({ parameter, field }) => parameter.in === "query" && field.value !== "");
  const query = new URLSearchParams(inQuery.map(({ parameter, field }) => [parameter.name, field.value]));
  const target = path.replace(PATTERN, (_, name) => encoded(name));
  const [file] = body?.field.files ?? [];
  const type = body && (file ? typeOfFile(file, body.types) : body.types[0]);
  const content = body && (body.field.files ? file : body.field.value.trim() || undefined);
  return { method, target: query.size > 0 ? `${target}?${query}` : target, type, content };
}

function typeOfFile({ name }, types) {
  return types.find((type) => /gzip/.test(type) && /gz$/.test(name)) ?? types[0];
}

/** Sends it as the console does, with the session and the header against forged requests. */
async function send({ method, target, type, content }, signal) {
  const headers = {
    ...(content !== undefined && { "Content-Type": type }),
    ...(method !== "GET" && { "X-Ops-CSRF": "1" }),
  };
  const started = performance.now();
  const options = { method, headers, body: content, signal, credentials: "same-origin", cache: "no-store" };
  const response = await fetch(target, options).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server cannot be reached");
  });
  const blob = await response.blob();
  const ms = Math.round(performance.now() - started);
  const kind = response.headers.get("Content-Type") ?? "";
  const id = response.headers.get("X-Request-Id");
  const line = `${response.status} ${response.statusText}, ${ms} ms, ${blob.size} bytes, request ${id}`;
  return [
    el("p", { class: response.ok ? "ok" : "why" }, line),
    el("pre", { tabindex: "0", role: "region", "aria-label": "Answer" }, await textOf(blob, kind)),
  ];
}

async function textOf(blob, kind) {
  if (blob.size === 0) return "(no body)";
  if (!/json|text|yaml/.test(kind)) return `(${kind}, not shown)`;
  const text = await blob.slice(0, 4 * SHOWN_CHARACTERS).text();
  const nice =
    /json/.test(kind) && text.length < SHOWN_CHARACTERS ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return nice.length > SHOWN_CHARACTERS ? `${nice.slice(0, SHOWN_CHARACTERS)}\n… (cut here)` : nice;
}

async function copyCurl({ method, target, type, content }, copied, result) {
  const parts = [`curl -sS${method === "GET" ? "" : ` -X ${method}`} ${quoted(location.origin + target)}`];
  parts.push('-H "Authorization: Bearer $OPS_SERVE_TOKEN"');
  if (content !== undefined) parts.push(`-H ${quoted(`Content-Type: ${type}`)}`);
  if (content instanceof File) parts.push(`--data-binary @${quoted(content.name)}`);
  else if (content !== undefined) parts.push(`--data-raw ${quoted(content)}`);
  const command = parts.join(" \\\n  ");
  result.replaceChildren(
    el("pre", { tabindex: "0", role: "region", "aria-label": "The same as a curl command" }, command),
  );
  try {
    await navigator.clipboard.writeText(command);
    copied.textContent = "Copied";
  } catch {
    copied.textContent = "The browser does not let it be copied: it is below";
  }
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
