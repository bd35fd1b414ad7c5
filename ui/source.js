import { all, call, encoded, unless } from "./api.js";
import { choice, fieldsOf, runLink } from "./controls.js";
import { button, el } from "./dom.js";
import { ago, count, short, size } from "./format.js";
import { dataOf, listPart, part, textBox } from "./parts.js";
import { fileDiff } from "./results.js";

/** Larger files are offered for download instead. */
const MOST_SHOWN = 512 * 1024;
const RESOURCES = /^workspace\/bucket\.jobs(?:\.(.+))?\.conf$/;
const TABS = {
  revisions: ["Revisions", revisionsParts],
  files: ["Files", filesParts],
  settings: ["Settings", settingsParts],
  key: ["SSH key", keyParts],
  snapshots: ["Snapshots", snapshotsParts],
  schema: ["Schema", schemaParts],
};

/** The source of a bucket, for reading only: what changes it is a push, or a roll back to what was pushed. */
export function sourceView(page) {
  const [wanted, ...rest] = page.rest;
  const name = wanted in TABS ? wanted : "revisions";
  const labels = Object.entries(TABS).map(([one, [label]]) => [one, label]);
  const hint = el("p.hint", "The source is read only here: it changes with ", el("code", "ops push"), ".");
  const above = [page.tabs("source", Object.fromEntries(labels), name), hint];
  return { title: "Source", above, parts: TABS[name][1]({ ...page, rest }) };
}

/** What was pushed, newest first; any two can be compared, and any can become the source again. */
function revisionsParts(page) {
  const { bucketId, path, link, rest } = page;
  const read = async () =>
    (await all(path("/source/revisions?limit=500"))).map(({ current, last_successful, ...one }) => {
      const is = [current && "current", last_successful && "last good"].filter(Boolean).join(", ");
      return { ...one, is, actions: current };
    });
  const push = el("code", `ops push ${location.origin} --bucket ${bucketId}`);
  const list = listPart("Revisions", read, {
    ...{
      caption: "Revisions, newest first",
      keys: ["id"],
      none: el("span", "Nothing was pushed yet: ", push),
    },
    columns: ["id", "created_at", "build_status", "is", "file_count", "size_bytes", "sha256", "actions"],
    cells: {
      id: ({ id }) => el("a", { href: link("source", ["revisions", id]) }, short(id)),
      created_at: ({ created_at, run_id }) => runLink(bucketId, run_id, ago(created_at)),
      is: ({ is }) => el("b", is),
      actions: (row) => row.actions || rollBack(page, row),
    },
  });
  return rest.length === 0 ? [list] : [comparison(page, rest[0]), list];
}

function rollBack({ action }, { id, created_at, build_status }) {
  const pushed = new Date(created_at).toLocaleString();
  const says = [
    `Makes the revision ${id}, pushed ${pushed}, the source again and builds it. Its build was: ${build_status}.`,
    "Nothing is deployed: workers stay as they are until the next deploy.",
  ];
  const order = {
    path: "/source/rollback",
    body: { revision_id: id },
    says,
    danger: true,
    action: "Roll back",
  };
  return action("Roll back to this …", () => order);
}

function comparison({ path, link, query }, id) {
  const against = query.get("against") ?? "";
  const asked = against && `?against=${encodeURIComponent(against)}`;
  const read = () =>
    Promise.all([
      call("GET", path(`/source/revisions/${encodeURIComponent(id)}/diff${asked}`)),
      all(path("/source/revisions?limit=500")),
    ]);
  const go = ({ target }) => {
    location.hash = link("source", ["revisions", id], { against: target.value });
  };
  return part(`What ${id.slice(0, 8)} changes`, read, ([{ added, removed, changed }, items]) => {
    const others = items.filter((one) => one.id !== id);
    const nameOf = (one) => [one.id, `${one.id.slice(0, 8)}, ${new Date(one.created_at).toLocaleString()}`];
    const files = [
      ...added.map((file) => ({ path: file, change: "added" })),
      ...removed.map((file) => ({ path: file, change: "removed" })),
      ...changed.map((file) => ({ ...file, change: "changed", note: noteOf(file) })),
    ];
    const sum = `${count(added.length, "file")} added, ${removed.length} removed, ${changed.length} changed.`;
    return [
      choice("Against", [["", "the current one"], ...others.map(nameOf)], against, go),
      el("p", sum),
      ...files.map(fileDiff),
    ];
  });
}

function noteOf({ mode, omitted }) {
  const modes = mode && `mode ${mode.before} → ${mode.after}`;
  const left = omitted && `${omitted.replaceAll("_", " ")}, not shown`;
  return [modes, left].filter(Boolean).join("; ");
}

function filesParts({ path, link, rest: [chosen] }) {
  return fileParts("Files", path("/files"), chosen, (file) => link("source", ["files", file]));
}

/** A list of files below a path of the API, and the chosen one of them; `linkTo` makes the address of a file. */
export function fileParts(title, base, chosen, linkTo) {
  const list = listPart(title, () => all(`${base}?limit=500`), {
    ...{ keys: ["path"], name: "files", none: "There is no file.", columns: ["path", "size_bytes", "mode"] },
    cells: { path: ({ path }) => el("a", { href: linkTo(path) }, path) },
  });
  return chosen === undefined ? [list] : [filePart(chosen, `${base}/${encoded(chosen)}`), list];
}

/** One file for reading: its text, or a download where it is no text or a large one. */
function filePart(path, url) {
  const blobOf = () => call("GET", url, { as: "blob" });
  const read = async () => {
    const blob = await blobOf();
    return { bytes: blob.size, text: blob.size > MOST_SHOWN ? undefined : decoded(await blob.arrayBuffer()) };
  };
  const download = button("Download", async () => {
    const href = URL.createObjectURL(await blobOf());
    el("a", { href, download: path.split("/").at(-1) }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  });
  const draw = ({ bytes, text }) => {
    if (text !== undefined) return textBox(path, text);
    return el("p.notice", `${size(bytes)} that are no text, or too many to show here: download the file.`);
  };
  return part(path, read, draw, { tools: [download] });
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The settings of the source: ops.conf, the bucket's and the jobs' resources, what is disabled, templates for jobs. */
function settingsParts({ path }) {
  const resources = async () => {
    const found = (await all(path("/files?limit=500")))
      .map((file) => RESOURCES.exec(file.path))
      .filter(Boolean);
    const one = ([, job = "default"]) => call("GET", path(`/settings/job_resources/${encoded(job)}`));
    return Promise.all(found.map(one));
  };
  const disabled = () => unless(call("GET", path("/workspace/disabled.json"), { as: "text" }), null);
  const templateOf = ({ name, files }) =>
    el("details", el("summary", name), dataOf(files.map((file) => file.path)));
  return [
    part("Bucket on this server", () => call("GET", path("/settings/maand")), drawSettings),
    part("Variables and ports", () => call("GET", path("/settings/bucket")), drawSettings),
    part("Resources of jobs", resources, (found) => found.map(drawSettings), {
      none: "There is no workspace/bucket.jobs.conf.",
    }),
    part("Disabled", disabled, (text) => textBox("disabled.json", text), {
      none: "Nothing is disabled: there is no workspace/disabled.json.",
    }),
    part(
      "Templates for jobs",
      () => all(path("/templates?limit=500")),
      (items) => items.map(templateOf),
      {
        none: "There are none. ops job create makes jobs of them, in the workspace that is pushed.",
      },
    ),
  ];
}

function drawSettings({ path, content, values, problem }) {
  return el(
    "div.settings",
    el("p", el("code", path)),
    problem && el("p.error", problem),
    content === "" ? el("p.notice", "There is no such file: defaults hold.") : textBox(path, content),
    values && el("details", el("summary", "What it means, with defaults"), dataOf(values)),
  );
}

/** The private key with which workers are reached: it can be put there and removed, but never read. */
function keyParts({ path, action, nameOfBucket }) {
  const url = "/secrets/ssh_key";
  let present = false;
  const upload = () => {
    const hint = "OpenSSH or PEM, without a passphrase";
    const { labels } = fieldsOf([["private_key", "Private key", hint, { rows: 8, required: true }]]);
    const text = labels[0].control;
    const take = async ({ target }) => {
      text.value = await target.files[0].text();
    };
    const says = [
      present
        ? "Replaces the private key: the one it has now is gone for good."
        : "Gives the private key for the workers.",
      "It is kept on the server and never shown again.",
    ];
    return {
      ...{ method: "PUT", path: url, title: "Upload the SSH key", says, action: "Store key", isSecret: true },
      body: () => ({ private_key: text.value.endsWith("\n") ? text.value : `${text.value}\n` }),
      fields: [
        el("label.field", el("span", "From a file"), el("input", { type: "file", onchange: take })),
        ...labels,
      ],
      danger: present && nameOfBucket(),
    };
  };
  const says = ["Removes the private key from this server: workers cannot be reached over ssh any more."];
  const remove = { method: "DELETE", path: url, says, danger: true, action: "Remove key" };
  const read = async () => {
    const key = await call("GET", path(url));
    ({ present } = key);
    return present ? key : null;
  };
  const draw = ({ type, ...key }) => [
    type ? null : el("p.error", "ssh cannot use this key."),
    dataOf({ type, ...key }),
  ];
  return [
    part("SSH key for the workers", read, draw, {
      none: "There is no key: workers cannot be reached over ssh until one is uploaded.",
      tools: [action("Upload key …", upload), action("Remove key …", () => remove, { style: "danger" })],
    }),
  ];
}

/** Copies of the bucket's database, keys and source that were made here. */
function snapshotsParts(page) {
  const create = () => {
    const { labels, values } = fieldsOf([["note", "Note", "Why it is made", { maxlength: 500 }]]);
    const says = [
      "Saves the database, keys and source in one file on this server. Deploys have to wait meanwhile.",
    ];
    return { path: "/snapshots", body: values, says, fields: labels };
  };
  const list = listPart("Snapshots", () => all(page.path("/snapshots?limit=500")), {
    ...{ caption: "Snapshots, newest first", keys: ["name"] },
    columns: ["name", "created_at", "note", "size_bytes", "source_revision", "schema_version", "actions"],
    cells: {
      note: ({ note, error }) => (error ? el("span.why", error) : note),
      actions: (row) => snapshotControls(page, row),
    },
    none: "There is none yet. A snapshot is made before each restore, too.",
    tools: [page.action("Create snapshot …", create)],
  });
  return [list];
}

function snapshotControls({ action }, { name, created_at }) {
  const path = `/snapshots/${encoded(name)}`;
  const made = new Date(created_at).toLocaleString();
  const says = [
    `Replaces the database, secrets, SSH state and name of the bucket by those of ${made}. The source and the workers stay as they are.`,
    "The present state is saved as another snapshot first.",
  ];
  const restore = { path: `${path}/restore`, says, danger: true };
  const lost = [`Removes the snapshot ${name} from this server. This cannot be undone.`];
  const remove = { method: "DELETE", path, says: lost, danger: true, action: "Delete snapshot" };
  return el(
    "div.controls",
    action("Restore …", () => restore),
    action("Delete …", () => remove, { style: "danger" }),
  );
}

/** The bucket's database: whether it is there, and how new its form is. */
function schemaParts({ path, action }) {
  const says = [
    "Makes the database where there is none, else brings it to the form this server works with.",
    "The bucket's id, its certificate authority and its keys stay. An older server cannot read an upgraded database.",
  ];
  const read = async () => {
    const { initialized, schema_version } = await call("GET", path(""));
    return { initialized, schema_version };
  };
  const tools = [action("Initialise or upgrade …", () => ({ path: "/init", says, danger: true }))];
  return [part("Database", read, dataOf, { tools })];
}
