import { bucketPath, link } from "./api.js";
import { bucketsView, catalogView, deploymentsView, overviewView } from "./bucket.js";
import { actionButton, queueing, runLink } from "./controls.js";
import { drawList, el } from "./dom.js";
import { commandView, hooksView, jobsView, jobView, workersView } from "./fleet.js";
import { status, words } from "./format.js";
import { runView } from "./run.js";
import { auditView, runsView } from "./runs.js";
import { sourceView } from "./source.js";

/** The views of a bucket. */
export const SECTIONS = [
  { name: "", label: "Overview", key: "o", view: overviewView },
  { name: "deployments", label: "Deployments", key: "d", view: deploymentsView },
  { name: "jobs", label: "Jobs", key: "j", view: jobsView, one: jobView },
  { name: "workers", label: "Workers", key: "w", view: workersView },
  { name: "runs", label: "Runs", key: "r", view: runsView, one: runView },
  { name: "audit", label: "Audit", key: "a", view: auditView },
  { name: "command", label: "Run command", key: "c", view: commandView },
  { name: "hooks", label: "Hooks", key: "h", view: hooksView },
  { name: "catalog", label: "Catalog", key: "k", view: catalogView },
  { name: "catalog", rest: ["kv"], label: "KV", key: "v", view: catalogView },
  { name: "catalog", rest: ["certs"], label: "Certificates", key: "e", view: catalogView },
  { name: "source", label: "Source", key: "s", view: sourceView },
];

const TABS = { kv: "KV", ssh_key: "SSH key" };
const header = document.getElementById("subject");
const sections = document.getElementById("sections");

/** Draws the view of an address. */
export function viewAt(main, { bucketId, ...place }) {
  const page = {
    bucketId,
    ...place,
    path: (rest) => (bucketId ? bucketPath(bucketId, rest) : rest),
    link: (...rest) => link(bucketId, ...rest),
    action: (...about) => actionButton(page, ...about),
    tabs: (...about) => tabsOf(page, ...about),
  };
  const view = viewOf(place, bucketId)(page);
  const { title, parts = [], above = [], readers = [], heading = el("h1", title) } = view;
  const elementOf = (one) => one.element ?? el("div.columns", one.map(elementOf));
  main.replaceChildren(heading, ...above, ...parts.map(elementOf));
  return { title, refresh: () => Promise.all([...parts.flat(), ...readers].map((one) => one.refresh())) };
}

function viewOf({ known, view, rest }, bucketId) {
  if (known && bucketId === undefined) return bucketsView;
  const section = known && SECTIONS.find(({ name }) => name === view);
  if (section) return rest.length > 0 && section.one ? section.one : section.view;
  const way = el("p", el("a", { href: "#/" }, "Go to the buckets"));
  return () => ({ title: "There is no such page", above: [way] });
}

function tabsOf(page, view, names, chosen, before = []) {
  const links = names.map((name) => {
    const href = page.link(view, [...before, name]);
    return el("a", { href, "aria-current": name === chosen && "page" }, TABS[name] ?? words(name));
  });
  return el("nav.tabs", { "aria-label": words(view) }, links);
}

/** Draws where the page is. */
export function drawSubject({ bucketId, view, rest = [] }, bucket, buckets) {
  header.hidden = sections.hidden = !bucketId;
  if (!bucketId) return;
  const isAt = (one) => one.name === view && (!one.rest || one.rest[0] === rest[0]);
  const current = SECTIONS.findLast(isAt);
  const links = SECTIONS.map((one) => ({ ...one, bucketId, isCurrent: one === current && "page" }));
  drawList(sections, links, ({ label, name, rest, isCurrent }) =>
    el("a", { href: link(bucketId, name, rest), "aria-current": isCurrent }, label),
  );
  const { active_run: active, last_run: last } = bucket ?? {};
  const where = { bucketId, view, bucket, known: buckets.length };
  drawList(header, [where, { bucketId, active, kind: active && last?.id === active ? last.kind : "run" }], (item) =>
    item === where ? placeOf(where, buckets) : nowOf(item),
  );
}

function nowOf({ bucketId, active, kind }) {
  const run = active && runLink(bucketId, active, status("running"), ` ${words(kind)}`);
  const says = run && [run, el("span", "Starts wait for its end."), queueing()];
  return el("section.now", { "aria-label": "Active run" }, says);
}

function placeOf({ bucketId, view, bucket }, buckets) {
  const way = [el("a", { href: "#/" }, "Buckets"), ` / ${bucket?.project ?? "…"} / `];
  return el("nav", { "aria-label": "Where this is" }, way, switcherOf(bucketId, view, bucket, buckets));
}

function switcherOf(bucketId, view, bucket, buckets) {
  const known = buckets.some(({ id }) => id === bucketId) ? buckets : [bucket ?? { id: bucketId, name: bucketId }];
  const options = known.map(({ id, project, name }) => {
    const label = bucket && project !== bucket.project ? `${project} / ${name}` : name;
    return el("option", { value: id, selected: id === bucketId }, label);
  });
  const change = ({ target }) => {
    location.hash = link(target.value, view);
  };
  return el("select", { "aria-label": "Bucket", onchange: change }, options);
}
