import { all, call, encoded, queryOf } from "./api.js";
import { choice, fieldsOf, runLink } from "./controls.js";
import { el, textBox } from "./dom.js";
import { ago, localTime, size } from "./format.js";
import { dataOf, listPart, part } from "./parts.js";
import { fileDiff } from "./runs.js";

const MOST_SHOWN = 512 * 1024;
const RESOURCES = /^workspace\/bucket\.jobs(?:\.(.+))?\.conf$/;
const TABS = {
  revisions: revisionsParts,
  files: filesParts,
  settings: settingsParts,
  ssh_key: keyParts,
  snapshots: snapshotsParts,
  schema: schemaParts,
};

/** The source, read only. */
export function sourceView(page) {
  const [wanted, ...rest] = page.rest;
  const name = Object.hasOwn(TABS, wanted) ? wanted : "revisions";
  const hint = el("p.hint", "Read only: it changes with ", el("code", "ops push"), ".");
  const above = [page.tabs("source", Object.keys(TABS), name), hint];
  return { title: "Source", above, parts: TABS[name]({ ...page, rest }) };
}

function revisionsParts(page) {
  const { bucketId, path, link, rest } = page;
  const read = async () =>
    (await all(path("/source/revisions?limit=500"))).map((one) => ({
      ...one,
      actions: "",
      is: [one.current && "current", one.last_successful && "last good"].filter(Boolean),
    }));
  const push = el("code", `ops push ${location.origin} --bucket ${bucketId}`);
  const list = listPart("Revisions", read, {
    none: ["Nothing was pushed yet: ", push],
    columns: ["id", "created_at", "build_status", "is", "file_count", "size_bytes", "sha256", "actions"],
    cells: {
      id: ({ id }) => el("a", { href: link("source", ["revisions", id]), title: id }, id.slice(0, 8)),
      created_at: ({ created_at, run_id }) => runLink(bucketId, run_id, ago(created_at)),
      actions: (row) => !row.current && rollBack(page, row),
    },
  });
  return rest.length === 0 ? [list] : [comparison(page, rest[0]), list];
}

function rollBack({ action }, { id, created_at }) {
  const says = [
    `Makes the revision ${id} of ${localTime(created_at)} the source again and builds it.`,
    "Workers stay until the next deploy.",
  ];
  const order = { path: "/source/rollback", body: { revision_id: id }, says, danger: true };
  return action("Roll back to this …", order);
}

function comparison({ path, link, query }, id) {
  const against = query.get("against") ?? "";
  const reads = [`/source/revisions/${encoded(id)}/diff?${queryOf({ against })}`, "/source/revisions?limit=500"];
  const go = ({ target }) => {
    location.hash = link("source", ["revisions", id], { against: target.value });
  };
  const draw = ([{ added, removed, changed }, { items }]) => {
    const others = items.filter((one) => one.id !== id);
    const options = others.map((one) => [one.id, `${one.id.slice(0, 8)}, ${localTime(one.created_at)}`]);
    const files = [
      ...added.map((file) => ({ path: file, change: "added" })),
      ...removed.map((file) => ({ path: file, change: "removed" })),
      ...changed.map((file) => ({ ...file, change: "changed", note: noteOf(file) })),
    ];
    const sum = `${added.length} added, ${removed.length} removed, ${changed.length} changed.`;
    return [choice("Against", [["", "the current one"], ...options], against, go), el("p", sum), ...files.map(fileDiff)];
  };
  const read = () => Promise.all(reads.map((one) => call("GET", path(one))));
  return part(`What ${id.slice(0, 8)} changes`, read, draw);
}

function noteOf({ mode, omitted }) {
  const modes = mode && `mode ${mode.before} → ${mode.after}`;
  return [modes, omitted && `${omitted.replaceAll("_", " ")}, not shown`].filter(Boolean).join("; ");
}

function filesParts({ path, link, rest: [chosen] }) {
  return fileParts("Files", path("/files"), chosen, (file) => link("source", ["files", file]));
}

/** Files, and the chosen one. */
export function fileParts(title, base, chosen, linkTo) {
  const list = listPart(title, () => all(`${base}?limit=500`), {
    name: "files",
    columns: ["path", "size_bytes", "mode"],
    cells: { path: ({ path }) => el("a", { href: linkTo(path) }, path) },
  });
  return chosen === undefined ? [list] : [filePart(chosen, `${base}/${encoded(chosen)}`), list];
}

function filePart(path, url) {
  const read = async () => {
    const blob = await call("GET", url, { as: "blob" });
    const text = blob.size > MOST_SHOWN ? "\uFFFD" : await blob.text();
    return { bytes: blob.size, text: text.includes("\uFFFD") ? null : text };
  };
  const other = (bytes) => `${size(bytes)}: download the file.`;
  const draw = ({ bytes, text }) => (text === null ? el("p.notice", other(bytes)) : textBox(path, text));
  return part(path, read, draw, { tools: el("a", { href: url, download: path.split("/").at(-1) }, "Download") });
}

function settingsParts({ path }) {
  const get = (rest) => call("GET", path(rest));
  const resources = async () => {
    const files = await all(path("/files?limit=500"));
    const found = files.map((file) => RESOURCES.exec(file.path)).filter(Boolean);
    return Promise.all(found.map(([, job = "default"]) => get(`/settings/job_resources/${encoded(job)}`)));
  };
  const templates = async () => {
    const found = await all(path("/templates?limit=500"));
    return found.flatMap(({ name, files }) => files.map((file) => ({ template: name, ...file })));
  };
  return [
    part("Bucket on this server", () => get("/settings/maand"), drawSettings),
    part("Variables and ports", () => get("/settings/bucket"), drawSettings),
    part("Resources of jobs", resources, (found) => found.map(drawSettings)),
    listPart("Templates", templates),
  ];
}

function drawSettings({ path, content, values, problem }) {
  return el(
    "div.data",
    el("p", el("code", path)),
    problem && el("p.error", problem),
    content === "" ? el("p.notice", "No such file: defaults hold.") : textBox(path, content),
    values && el("details", el("summary", "With defaults"), dataOf(values)),
  );
}

function keyParts({ path, action }) {
  const url = "/secrets/ssh_key";
  let present = false;
  const upload = () => {
    const hint = "OpenSSH or PEM, without a passphrase";
    const { labels } = fieldsOf([
      ["file", "From a file", "", { type: "file" }],
      ["private_key", "Private key", hint, { rows: 8, required: true }],
    ]);
    const [file, text] = labels.map(({ control }) => control);
    file.addEventListener("change", async () => {
      text.value = await file.files[0].text();
    });
    const says = [`${present ? "Replaces" : "Stores"} the private key. It is never shown again.`];
    const body = () => ({ private_key: `${text.value.trimEnd()}\n` });
    const order = { method: "PUT", path: url, body, example: { private_key: "…" }, danger: present };
    return { ...order, says, fields: labels };
  };
  const says = ["Removes the private key: workers cannot be reached over ssh any more."];
  const remove = { method: "DELETE", path: url, says, danger: true };
  const read = async () => {
    const key = await call("GET", path(url));
    ({ present } = key);
    return present ? key : null;
  };
  const draw = (key) => [!key.type && el("p.error", "ssh cannot use this key."), dataOf(key)];
  return [
    part("SSH key for the workers", read, draw, {
      none: "There is no key: workers cannot be reached over ssh.",
      tools: [action("Upload key …", upload), action("Remove key …", remove, { style: "danger" })],
    }),
  ];
}

function snapshotsParts(page) {
  const create = () => {
    const { labels, values } = fieldsOf([["note", "Note"]]);
    const says = ["Saves the database, keys and source."];
    return { path: "/snapshots", body: values, says, fields: labels };
  };
  const list = listPart("Snapshots", () => all(page.path("/snapshots?limit=500")), {
    columns: ["name", "created_at", "note", "size_bytes", "source_revision", "schema_version", "actions"],
    cells: { note: ({ note, error }) => (error ? el("span.why", error) : note), actions: (row) => snapshotControls(page, row) },
    tools: page.action("Create snapshot …", create),
  });
  return [list];
}

function snapshotControls({ action }, { name, created_at }) {
  const path = `/snapshots/${encoded(name)}`;
  const says = [
    `Replaces the database, secrets, SSH state and name by those of ${localTime(created_at)}.`,
    "The present state is saved first.",
  ];
  const restore = { path: `${path}/restore`, says, danger: true };
  const lost = [`Removes the snapshot ${name}. This cannot be undone.`];
  const remove = { method: "DELETE", path, says: lost, danger: true, action: "Delete snapshot" };
  const buttons = [action("Restore …", restore), action("Delete …", remove, { style: "danger" })];
  return el("div.controls", buttons);
}

function schemaParts({ path, action }) {
  const says = ["Makes or upgrades the database; an older server cannot read it then."];
  const read = async () => {
    const { initialized, schema_version } = await call("GET", path(""));
    return { initialized, schema_version };
  };
  const tools = action("Initialise or upgrade …", { path: "/init", says, danger: true });
  return [part("Database", read, dataOf, { tools })];
}
