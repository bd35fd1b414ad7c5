import { el } from "./dom.js";
import { filesParts } from "./files.js";
import { viewOfParts } from "./part.js";
import { revisionsParts } from "./revisions.js";
import { schemaParts } from "./schema.js";
import { settingsParts } from "./settings.js";
import { snapshotsParts } from "./snapshots.js";
import { keyParts } from "./ssh-key.js";
import { tabBar } from "./tabs.js";

const TABS = [
  ["revisions", "Revisions", revisionsParts],
  ["files", "Files", filesParts],
  ["settings", "Settings", settingsParts],
  ["key", "SSH key", keyParts],
  ["snapshots", "Snapshots", snapshotsParts],
  ["schema", "Schema", schemaParts],
];

/** The source of a bucket, for reading only: what changes it is a push, or a roll back to what was pushed. */
export function sourceView(main, page) {
  const [wanted = "revisions", ...rest] = page.rest;
  const [name, label, parts] = TABS.find(([one]) => one === wanted) ?? TABS[0];
  const bar = tabBar("Source", page.bucketId, "source", TABS, name);
  const hint = el(
    "p",
    { class: "hint" },
    "The source is read only here: it changes with ",
    el("code", {}, "ops push"),
    ".",
  );
  const view = viewOfParts(main, "Source", parts({ ...page, rest }), [bar, hint]);
  return { ...view, title: `${label} · Source` };
}
