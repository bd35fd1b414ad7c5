import { link } from "./address.js";
import { all, bucketPath, call } from "./api.js";
import { ask } from "./dialog.js";
import { button, el } from "./dom.js";
import { field } from "./fields.js";
import { ago, count, status, words } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";

/** The view of all projects and their buckets. */
export function bucketsView(main, { changed }) {
  const create = button("Create bucket", () => createBucket(), { class: "primary" });
  const filter = el("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter buckets",
    "data-search": true,
  });
  filter.addEventListener("input", () => hideOthers(main, filter.value));
  const list = part(
    "",
    () => all("/api/buckets?limit=500"),
    (buckets) => {
      changed(buckets);
      queueMicrotask(() => hideOthers(main, filter.value));
      if (buckets.length === 0)
        return nothing("There is no bucket yet. Create one, then push a workspace to it.");
      return byProject(buckets).map(projectSection);
    },
  );
  return viewOfParts(main, "Buckets", [list], [el("div", { class: "controls" }, filter, create)]);
}

function byProject(buckets) {
  const projects = Map.groupBy(buckets, ({ project }) => project);
  return [...projects]
    .map(([name, own]) => ({ name, buckets: own.sort((a, b) => a.name.localeCompare(b.name)) }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

function projectSection({ name, buckets }) {
  return el(
    "section",
    { class: "part project" },
    el("header", {}, el("h2", {}, name), el("span", { class: "hint" }, count(buckets.length, "bucket"))),
    el("ul", { class: "cards" }, ...buckets.map(card)),
  );
}

function card({ id, name, initialized, last_run: run }) {
  return el(
    "li",
    {},
    el("a", { href: link(id) }, name),
    el("code", {}, id),
    run
      ? el("p", {}, status(run.status), ` ${words(run.kind)}, `, ago(run.created_at))
      : el("p", { class: "hint" }, initialized ? "Nothing has run here yet." : "Not initialised yet."),
  );
}

function hideOthers(main, text) {
  const wanted = text.toLowerCase();
  for (const section of main.querySelectorAll(".project")) {
    const ofProject = section.querySelector("h2").textContent.toLowerCase().includes(wanted);
    const cards = [...section.querySelectorAll("li")];
    for (const one of cards) one.hidden = !ofProject && !one.textContent.toLowerCase().includes(wanted);
    section.hidden = cards.every((one) => one.hidden);
  }
}

async function createBucket() {
  const [project, name, id] = [label(), label(), el("input", { autocomplete: "off", spellcheck: "false" })];
  let bucket;
  const submit = async () => {
    const body = {
      project: project.value,
      name: name.value,
      ...(id.value.trim() && { id: id.value.trim() }),
    };
    bucket = await call("POST", "/api/buckets", { body });
  };
  const fields = [
    field("Project", project),
    field("Name", name),
    field("Id", id, "A UUID, where this bucket has one elsewhere; empty for a new one"),
  ];
  const says = ["Makes its folders and its database on this server. Its source comes with the first push."];
  if (await ask({ title: "Create a bucket", says, fields, action: "Create bucket", submit }))
    location.hash = link(bucket.id);
}

/** Asks for another project and name of a bucket. */
export async function renameBucket(bucket) {
  const [project, name] = [label(bucket.project), label(bucket.name)];
  const submit = () =>
    call("PUT", bucketPath(bucket.id), { body: { project: project.value, name: name.value } });
  const says = ["Only what people call it changes; its id and everything in it stay."];
  const fields = [field("Project", project), field("Name", name)];
  return await ask({ title: `Rename ${bucket.name}`, says, fields, action: "Rename", submit });
}

/** Asks for the bucket's name, then deletes it. */
export async function deleteBucket(bucket) {
  const says = [
    `Removes ${bucket.project} / ${bucket.name} (${bucket.id}) from this server: its source and revisions, catalog, key-value store, secrets, certificates and the history of its runs. This cannot be undone.`,
    "What runs on the workers goes on running; nothing is stopped there.",
  ];
  const submit = () => call("DELETE", bucketPath(bucket.id));
  const question = {
    title: "Delete this bucket",
    says,
    word: bucket.name,
    action: "Delete bucket",
    danger: true,
    submit,
  };
  if (await ask(question)) location.hash = "#/";
}

function label(value = "") {
  return el("input", { required: true, maxlength: 200, value, autocomplete: "off" });
}
