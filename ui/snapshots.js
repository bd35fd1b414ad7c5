import { all, bucketPath, call, encoded } from "./api.js";
import { ask } from "./dialog.js";
import { button, el } from "./dom.js";
import { field } from "./fields.js";
import { ago, short, size } from "./format.js";
import { nothing, tablePart } from "./part.js";
import { startButton } from "./starts.js";

/** Copies of the bucket's database, keys and source that were made here. */
export function snapshotsParts({ bucketId, nameOfBucket }) {
  const base = bucketPath(bucketId, "/snapshots");
  const tools = [startButton(bucketId, "Create snapshot", create)];
  const options = {
    caption: "Snapshots, newest first",
    rowKey: ({ name }) => name,
    empty: nothing("There is none yet. A snapshot is made before each restore, too."),
    columns: [
      { key: "name", label: "Snapshot", cell: ({ name }) => el("code", {}, name) },
      { key: "created_at", label: "Made", cell: (row) => ago(row.created_at) },
      {
        key: "note",
        label: "Note",
        cell: ({ note, error }) => (error ? el("span", { class: "why" }, error) : note),
      },
      { key: "size_bytes", label: "Size", number: true, cell: (row) => size(row.size_bytes) },
      { key: "source_revision", label: "Source", cell: (row) => short(row.source_revision) },
      { key: "schema_version", label: "Schema", number: true },
      { key: "actions", label: "Actions", text: () => "", cell: actionsOf },
    ],
  };
  const list = tablePart("Snapshots", () => all(`${base}?limit=500`), options, tools);

  function create() {
    const note = el("input", { maxlength: 500, autocomplete: "off" });
    const body = {};
    const question = {
      title: "Create a snapshot",
      says: [
        "Saves the database, keys and source in one file on this server. Deploys have to wait meanwhile.",
      ],
      fields: [field("Note", note, "Why it is made")],
      submit: async () => {
        if (note.value !== "") body.note = note.value;
      },
    };
    return { path: "/snapshots", body, ask: question };
  }

  function actionsOf({ name, created_at }) {
    const says = [
      `Replaces the database, secrets, SSH state and name of ${nameOfBucket()} by those of ${new Date(created_at).toLocaleString()}. The source and the workers stay as they are.`,
      "The present state is saved as another snapshot first.",
    ];
    const question = {
      title: "Restore this snapshot",
      says,
      word: nameOfBucket(),
      action: "Restore",
      danger: true,
    };
    const restore = () => ({ path: `/snapshots/${encoded(name)}/restore`, ask: question });
    return el(
      "div",
      { class: "controls" },
      startButton(bucketId, "Restore …", restore),
      button("Delete …", () => remove(name), { class: "danger" }),
    );
  }

  async function remove(name) {
    const says = [
      `Removes the snapshot ${name} of ${nameOfBucket()} from this server. This cannot be undone.`,
    ];
    const submit = () => call("DELETE", `${base}/${encoded(name)}`);
    const question = {
      title: "Delete this snapshot",
      says,
      word: nameOfBucket(),
      action: "Delete snapshot",
      danger: true,
      submit,
    };
    if (await ask(question)) list.refresh();
  }
  return [list];
}
