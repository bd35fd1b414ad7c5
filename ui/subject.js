import { link } from "./address.js";
import { el } from "./dom.js";
import { status, words } from "./format.js";
import { SECTIONS } from "./routes.js";
import { runLink } from "./starts.js";

const header = document.getElementById("subject");
const sections = document.getElementById("sections");

/** The bucket that the views are about: where it belongs, what runs there, and the way to its views and to other buckets. */
export function drawSubject({ bucketId, view }, bucket, buckets) {
  header.hidden = bucketId === undefined;
  sections.hidden = bucketId === undefined;
  if (bucketId === undefined) return;
  drawSections(bucketId, view);
  const content = JSON.stringify([bucketId, view, bucket, buckets.length]);
  if (header.dataset.content === content) return;
  header.dataset.content = content;
  const active = bucket?.active_run;
  const running = active && bucket.last_run?.id === active ? words(bucket.last_run.kind) : "A run";
  header.replaceChildren(
    el(
      "nav",
      { "aria-label": "Where this is" },
      el("a", { href: "#/" }, "Buckets"),
      el("span", {}, ` / ${bucket?.project ?? "…"} / `),
      switcher(bucketId, view, bucket, buckets),
    ),
    el("p", { class: "now" }, active ? runLink(bucketId, active, status("running"), ` ${running}`) : null),
  );
}

function switcher(bucketId, view, bucket, buckets) {
  const known = buckets.some(({ id }) => id === bucketId)
    ? buckets
    : [{ id: bucketId, project: bucket?.project ?? "", name: bucket?.name ?? bucketId }];
  const options = known.map(({ id, project, name }) =>
    el(
      "option",
      { value: id, selected: id === bucketId },
      known.length > 1 && project !== bucket?.project ? `${project} / ${name}` : name,
    ),
  );
  const select = el("select", { "aria-label": "Bucket" }, ...options);
  select.addEventListener("change", () => {
    location.hash = link(select.value, view);
  });
  return select;
}

function drawSections(bucketId, view) {
  if (sections.dataset.bucket !== bucketId) {
    sections.dataset.bucket = bucketId;
    sections.replaceChildren(
      ...SECTIONS.map(({ name, label, key }) =>
        el("a", { href: link(bucketId, name), "data-view": name, title: `g ${key}` }, label),
      ),
    );
  }
  for (const one of sections.children) {
    if (one.dataset.view === view) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}
