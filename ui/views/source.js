import { encoded, keepQuery, queryOf, unless } from "../base/api.js";
import { a, el, facts } from "../base/dom.js";
import { ago, count, joined, localTime, prose, said, size, textBox } from "../base/text.js";
import { shortId, toast } from "../parts/dialog.js";
import { fileParts } from "../parts/files.js";
import { choice } from "../parts/form.js";
import { deleteItem, pushCommand, renameOrder } from "../parts/guide.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { empty, head, region, tabbed, viewOf } from "../parts/region.js";
import { badge, state, tag } from "../parts/state.js";
import { dataOf, listing } from "../parts/table.js";
import { fileFold } from "../run/files.js";
import { rollbackOrder } from "../run/orders.js";
import { keysTab } from "../watch/keys.js";

/** So many differences are open at first. */
const FEW_FILES = 10;
/** A snapshot is unpacked for its check. */
const CHECK_MS = 90_000;
const JOB_SETTINGS = /^workspace\/bucket\.jobs(?:\.(.+))?\.conf$/;
/** @type {Parameters<typeof tabbed>[1]} */
const SOURCE_TABS = {
  revisions: ["Revisions", revisions],
  files: ["Files", sourceFiles],
  settings: ["Settings", settings],
  keys: ["Keys", keysTab],
  snapshots: ["Snapshots", snapshots],
  schema: ["Schema and bucket", schema],
};

/** The source, for reading, and what the server keeps of its own: keys, snapshots, schema (control-plane.md, UI). */
export function sourceView(page) {
  const [choices, partsOf] = tabbed(page, SOURCE_TABS);
  const line = prose("Read only: the source changes with `ops push` and with a rollback.");
  return viewOf("Source", [head({ title: "Source", line }), choices], partsOf({ ...page, rest: page.rest.slice(1) }));
}

function revisions(page) {
  const [chosen] = page.rest;
  const read = () => page.list("/source/revisions?limit=500");
  const list = listing(read, {
    caption: "Revisions",
    stateColumn: "build_status",
    columns: ["id", "created_at", "note", "commit", "build_status", "is", "file_count", "size_bytes", "actions"],
    labels: { id: "Revision", created_at: "Pushed", build_status: "Build", is: "", file_count: "Files" },
    cells: {
      id: ({ id }) => el("a.code", { href: page.link("source", ["revisions", id]), title: id }, `…${id.slice(-8)}`),
      created_at: ({ created_at: at, run_id: run }) => a(page.link("runs", [run]), ago(at)),
      commit: ({ commit }) => commit && el("span.code", { title: commit }, commit.replace(/^(.{8})[^-]*/, "$1")),
      is: ({ current, last_successful: good }) => [current && tag("current"), " ", good && badge("ok", "last good")],
      actions: (row) => !row.current && orderButton(page, "Roll back …", () => rollbackOrder(page, row), { style: "small" }),
    },
    none: empty("Nothing was pushed yet.", pushCommand(page)),
  });
  return chosen === undefined ? [list] : [comparison(page, chosen), list];
}

/** What a revision changes against another one. */
function comparison(page, id) {
  let against = page.query.get("against") ?? "";
  const diff = () => page.get(`/source/revisions/${encoded(id)}/diff?${queryOf({ against })}`);
  const go = (value) => {
    against = value;
    keepQuery({ against });
    part.refresh();
  };
  const view = { folds: new Map(), draw: () => part.draw() };
  const draw = ([{ added, removed, changed }, { items }]) => {
    const others = items.filter((one) => one.id !== id);
    const options = others.map((one) => [one.id, `…${one.id.slice(-8)}, ${localTime(one.created_at)}`]);
    const told = Object.entries({ added, removed, changed }).map(([word, all]) => `${count(all.length, "file")} ${word}`);
    const files = [
      ...changed.map((file) => ({ ...file, change: "changed", note: noteOf(file) })),
      ...Object.entries({ added, removed }).flatMap(([change, paths]) => paths.map((path) => ({ path, change }))),
    ];
    const other = choice("Against", [["", "the current one"], ...options], against, go);
    const folds = files.map((file) => fileFold(view, file.path, file, { open: files.length <= FEW_FILES }));
    return [
      el("div.spread", el("h2", "What ", shortId(id), " changes"), other),
      el("p.meta", told.join(", "), "."),
      folds.length > 0 && el("div.panel", folds),
    ];
  };
  const part = region(() => Promise.all([diff(), page.get("/source/revisions?limit=500")]), draw);
  return part;
}

function noteOf({ mode, omitted }) {
  return joined(mode && `mode ${mode.before} → ${mode.after}`, omitted && `${omitted.replaceAll("_", " ")}, not shown`);
}

function sourceFiles(page) {
  const [chosen] = page.rest;
  return fileParts(page, { base: "/files", chosen, linkTo: (file) => page.link("source", ["files", file]) });
}

function settings(page) {
  const read = async () => {
    const sources = await page.list("/files?limit=500");
    const own = sources.map(({ path }) => JOB_SETTINGS.exec(path)).filter(Boolean);
    const resources = own.map(([, selector = "default"]) => `/settings/job_resources/${encoded(selector)}`);
    return await Promise.all(["/settings/maand", "/settings/bucket", ...resources].map((rest) => page.get(rest)));
  };
  return [
    el("p.meta", "To change a setting, edit the file in your folder and push it: ", pushCommand(page)),
    region(read, (found) => found.map(settingsOf)),
  ];
}

function settingsOf({ path, content, values, problem }) {
  return el("section.panel.pad", { key: path }, [
    el("h2", el("code", path)),
    problem && el("p.error", said(problem)),
    content === "" ? el("p.meta", "There is no such file: the defaults hold.") : textBox(path, content),
    values && el("details", el("summary", "Values, with the defaults"), dataOf(values)),
  ]);
}

function snapshots(page) {
  const says = ["Saves database, keys and source in one file on the server."];
  const asks = [
    { name: "note", label: "Note" },
    { ...PASSPHRASE, hint: "Seals the snapshot; empty for the settings of ops.conf" },
  ];
  const create = { path: "/snapshots", says, asks, example: { note: "…" } };
  const table = {
    caption: "Snapshots",
    columns: ["name", "created_at", "note", "size_bytes", "seal", "signer", "schema_version", "actions"],
    labels: { created_at: "Made", seal: "Sealed for", signer: "Signed by", schema_version: "Schema" },
    cells: {
      seal: ({ seal }) => (seal ? said(seal.recipient ?? "a passphrase") : "nobody"),
      signer: ({ signer, own }) => (own ? "this server" : said(signer ?? "nobody")),
      note: ({ note, error }) => (error ? el("span.error", said(error)) : said(note)),
      actions: (row) => snapshotOrders(page, row),
    },
    keyOf: ({ name }) => name,
    none: "There is no snapshot yet.",
    tools: orderButton(page, "Create a snapshot …", create, { style: "primary" }),
  };
  return listing(() => page.list("/snapshots?limit=500"), table);
}

function snapshotOrders(page, row) {
  const { name, created_at: at } = row;
  const path = `/snapshots/${encoded(name)}`;
  const says = [
    `Replaces database, secrets, ssh state and name by those of ${localTime(at)}. The source stays.`,
    "The present state is saved first.",
  ];
  const restore = { ...opening(row, says), path: `${path}/restore`, danger: true, action: "Restore" };
  const gone = [`Removes the snapshot ${name}. This cannot be undone.`];
  const remove = { method: "DELETE", path, says: gone, danger: true, action: "Delete the snapshot" };
  const items = () => [curlItem(page, restore), el("hr"), orderItem(page, "Delete …", remove, { dangerous: true, free: true })];
  const more = moreMenu(items, `Orders for ${name}`);
  return el("span.controls", checkButton(page, path, row), orderButton(page, "Restore …", restore, { style: "small" }), more);
}

const PASSPHRASE = { name: "passphrase", label: "Passphrase", type: "password", autocomplete: "off" };

/** What has to be said and asked before a snapshot is opened: whose it is, and what opens it. */
function opening({ signer, own, seal, error }, says) {
  const whose = signer
    ? [`This server did not make it: the key that signed it is ${signer}. Compare that with the server that did.`]
    : ["It is not signed: whoever can write files may have made it."];
  const trust = own || error ? {} : signer ? { signer } : { unsigned: true };
  const key = { name: "key", label: "Key", hint: "ops snapshot restore --identity-file on the command line needs none" };
  return {
    says: own || error ? says : [...whose, ...says],
    ...(seal && { asks: [seal.for === "passphrase" ? PASSPHRASE : key] }),
    body: (typed = {}) => ({ ...trust, ...typed }),
    example: trust,
  };
}

/** Reads the whole snapshot and compares its sums; nothing is changed. A sealed one asks for what opens it. */
function checkButton(page, path, row) {
  const { says, ...known } = opening(row, ["Opens the snapshot and compares all of it. Nothing is changed."]);
  const order = { ...known, says: row.seal && says, path: `${path}/verify`, action: "Check", limitMs: CHECK_MS };
  const done = ({ error, files, size_bytes: bytes }) =>
    toast(error ?? `The snapshot can be restored: ${count(files, "file")}, ${size(bytes)}.`, { error: error !== null });
  return orderButton(page, row.seal ? "Check …" : "Check", order, { style: "small", free: true, done });
}

function schema(page) {
  const says = ["Makes or upgrades the database; an older server cannot read it then."];
  const upgrade = { path: "/init", says, danger: true, action: "Initialise or upgrade" };
  const read = () => Promise.all([page.get(), unless(page.get("/info"), null)]);
  const draw = ([bucket, info]) => {
    const about = [
      ["Bucket", said(`${bucket.project}/${bucket.name}`)],
      ["Id", el("code", bucket.id)],
      ["Made", ago(bucket.created_at)],
      ["Database", bucket.initialized ? state("ok", `schema ${bucket.schema_version}`) : state("waiting", "not initialised")],
      ["Last build", info && (info.built_at ? ago(info.built_at) : "never")],
      ["Update sequence", info?.update_seq],
    ];
    const controls = [
      orderButton(page, "Initialise or upgrade …", upgrade, { free: true }),
      orderButton(page, "Rename …", () => renameOrder(page), { free: true }),
      moreMenu(() => [curlItem(page, upgrade), el("hr"), deleteItem(page)]),
    ];
    return [facts(about), el("div.controls", controls)];
  };
  return region(read, draw, { name: "section.panel.pad", rows: 4 });
}
