import { link } from "./address.js";
import { all, bucketPath, call } from "./api.js";
import { fileDiff } from "./diff.js";
import { el } from "./dom.js";
import { choice, field, optionsOf } from "./fields.js";
import { ago, count, short, size, status } from "./format.js";
import { nothing, part, tablePart } from "./part.js";
import { runLink, startButton } from "./starts.js";

/** What was pushed, newest first; any two can be compared, and any can become the source again. */
export function revisionsParts({ bucketId, rest: [chosen], query }) {
  const read = () => all(bucketPath(bucketId, "/source/revisions?limit=500"));
  const list = tablePart("Revisions", read, {
    caption: "Revisions, newest first",
    rowKey: ({ id }) => id,
    empty: nothing(
      "Nothing was pushed yet: ",
      el("code", {}, `ops push ${location.origin} --bucket ${bucketId}`),
    ),
    columns: [
      {
        key: "id",
        label: "Revision",
        cell: ({ id }) => el("a", { href: link(bucketId, "source", ["revisions", id]) }, short(id)),
      },
      {
        key: "created_at",
        label: "Pushed",
        cell: ({ created_at, run_id }) => runLink(bucketId, run_id, ago(created_at)),
      },
      { key: "build_status", label: "Build", facet: true, cell: (row) => status(row.build_status) },
      { key: "marks", label: "Is", text: marksOf, cell: (row) => el("b", {}, marksOf(row)) },
      { key: "file_count", label: "Files", number: true },
      { key: "size_bytes", label: "Size", number: true, cell: (row) => size(row.size_bytes) },
      { key: "sha256", label: "SHA-256", cell: (row) => short(row.sha256) },
      {
        key: "actions",
        label: "Actions",
        text: () => "",
        cell: (row) => (row.current ? "" : rollBack(bucketId, row)),
      },
    ],
  });
  return chosen === undefined ? [list] : [comparison(bucketId, chosen, query.get("against") ?? ""), list];
}

function marksOf({ current, last_successful }) {
  return [current && "current", last_successful && "last good"].filter(Boolean).join(", ");
}

function rollBack(bucketId, { id, created_at, build_status }) {
  const says = [
    `Makes the revision ${id}, pushed ${new Date(created_at).toLocaleString()}, the source again and builds it. Its build was: ${build_status}.`,
    "Nothing is deployed: workers stay as they are until the next deploy.",
  ];
  const title = `Roll back to ${id.slice(0, 8)}?`;
  const order = () => ({
    path: "/source/rollback",
    body: { revision_id: id },
    ask: { title, says, action: "Roll back", danger: true },
  });
  return startButton(bucketId, "Roll back to this", order);
}

function comparison(bucketId, id, against) {
  const query = against === "" ? "" : `?against=${encodeURIComponent(against)}`;
  const others = choice([["", "the current one"]], "", () => {
    location.hash = link(bucketId, "source", ["revisions", id], { against: others.value });
  });
  const read = async () => {
    const [diff, items] = await Promise.all([
      call("GET", bucketPath(bucketId, `/source/revisions/${encodeURIComponent(id)}/diff${query}`)),
      all(bucketPath(bucketId, "/source/revisions?limit=500")),
    ]);
    return { diff, items };
  };
  return part(`What ${id.slice(0, 8)} changes`, read, ({ diff, items }) => {
    const rest = items.filter((one) => one.id !== id).map((one) => [one.id, nameOf(one)]);
    others.replaceChildren(...optionsOf([["", "the current one"], ...rest], against));
    const sum = `${count(diff.added.length, "file")} added, ${diff.removed.length} removed, ${diff.changed.length} changed.`;
    const same = diff.added.length + diff.removed.length + diff.changed.length === 0;
    return [
      field("Against", others),
      el("p", {}, same ? "No file differs." : sum),
      ...diff.added.map((path) => fileDiff({ path, change: "added" })),
      ...diff.removed.map((path) => fileDiff({ path, change: "removed" })),
      ...diff.changed.map((file) => fileDiff({ ...file, change: "changed", note: noteOf(file) }, true)),
    ];
  });
}

function nameOf({ id, created_at }) {
  return `${id.slice(0, 8)}, ${new Date(created_at).toLocaleString()}`;
}

function noteOf({ mode, omitted }) {
  const modes = mode ? `mode ${mode.before} → ${mode.after}` : "";
  const left = omitted ? `${omitted.replaceAll("_", " ")}, not shown` : "";
  return [modes, left].filter((text) => text !== "").join("; ");
}
