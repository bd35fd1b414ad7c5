import { all, bucketPath, call, encoded, unless } from "./api.js";
import { el } from "./dom.js";
import { nothing, part } from "./part.js";
import { dataOf } from "./results.js";

const RESOURCES = /^workspace\/bucket\.jobs(?:\.(.+))?\.conf$/;

/** The settings of the source: ops.conf, the bucket's and the jobs' resources, what is disabled, templates for jobs. */
export function settingsParts({ bucketId }) {
  const path = (rest) => bucketPath(bucketId, rest);
  const resources = part(
    "Resources of jobs",
    () => readResources(bucketId),
    (found) =>
      found.length === 0 ? nothing("There is no workspace/bucket.jobs.conf.") : found.map(drawSettings),
  );
  const disabled = part(
    "Disabled",
    () => unless(call("GET", path("/workspace/disabled.json"), { as: "text" }), ""),
    (text) =>
      text === ""
        ? nothing("Nothing is disabled: there is no workspace/disabled.json.")
        : fileText("disabled.json", text),
  );
  const templates = part(
    "Templates for jobs",
    () => all(path("/templates?limit=500")),
    (items) =>
      items.length === 0
        ? nothing("There are none. ops job create makes jobs of them, in the workspace that is pushed.")
        : items.map(({ name, files }) =>
            el(
              "details",
              {},
              el("summary", {}, name),
              el("ul", {}, ...files.map((file) => el("li", {}, file.path))),
            ),
          ),
  );
  return [
    part("Bucket on this server", () => call("GET", path("/settings/maand")), drawSettings),
    part("Variables and ports", () => call("GET", path("/settings/bucket")), drawSettings),
    ...[resources, disabled, templates],
  ];
}

async function readResources(bucketId) {
  const files = await all(bucketPath(bucketId, "/files?limit=500"));
  const selectors = files.flatMap(({ path }) => {
    const match = RESOURCES.exec(path);
    return match ? [match[1] ?? "default"] : [];
  });
  const one = (selector) => call("GET", bucketPath(bucketId, `/settings/job_resources/${encoded(selector)}`));
  return Promise.all(selectors.map(one));
}

function drawSettings({ path, content, values, problem }) {
  return el(
    "div",
    { class: "settings" },
    el("p", {}, el("code", {}, path)),
    problem ? el("p", { class: "error" }, problem) : null,
    content === "" ? nothing("There is no such file: defaults hold.") : fileText(path, content),
    values ? el("details", {}, el("summary", {}, "What it means, with defaults"), dataOf(values)) : null,
  );
}

function fileText(name, text) {
  return el("pre", { class: "file", tabindex: 0, role: "group", "aria-label": name }, text);
}
