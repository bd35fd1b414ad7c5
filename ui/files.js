import { link } from "./address.js";
import { all, bucketPath, call, encoded } from "./api.js";
import { button, el } from "./dom.js";
import { size } from "./format.js";
import { nothing, part, tablePart } from "./part.js";

/** Larger files are offered for download instead. */
const MOST_SHOWN = 512 * 1024;

/** The files of the source, and one of them. */
export function filesParts({ bucketId, rest: [chosen] }) {
  return fileParts("Files", bucketPath(bucketId, "/files"), chosen, (path) =>
    link(bucketId, "source", ["files", path]),
  );
}

/** A list of files below a path of the API, and the chosen one of them; `linkTo` makes the address of a file. */
export function fileParts(title, base, chosen, linkTo) {
  const list = tablePart(title, () => all(`${base}?limit=500`), {
    caption: title,
    rowKey: ({ path }) => path,
    empty: nothing("There is no file."),
    columns: [
      { key: "path", label: "Path", cell: ({ path }) => el("a", { href: linkTo(path) }, path) },
      { key: "size_bytes", label: "Size", number: true, cell: (row) => size(row.size_bytes) },
      { key: "mode", label: "Mode" },
    ],
  });
  if (chosen === undefined) return [list];
  return [filePart(chosen, `${base}/${encoded(chosen)}`), list];
}

/** One file for reading: its text with line numbers, or a download where it is no text or a large one. */
export function filePart(path, url) {
  const read = async () => {
    const blob = await call("GET", url, { as: "blob" });
    if (blob.size > MOST_SHOWN) return { bytes: blob.size };
    return { bytes: blob.size, text: textOf(await blob.arrayBuffer()) };
  };
  const download = button("Download", async () => save(await call("GET", url, { as: "blob" }), path));
  return part(
    path,
    read,
    ({ bytes, text }) => {
      if (text === undefined)
        return nothing(`${size(bytes)} that are no text, or too many to show here: download the file.`);
      return el(
        "pre",
        { class: "file", tabindex: 0, role: "group", "aria-label": path },
        text === "" ? "(empty)" : text,
      );
    },
    { tools: [download] },
  );
}

function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function save(blob, path) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: path.split("/").at(-1) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
