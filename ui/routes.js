import { bucketsView } from "./buckets.js";
import { catalogView } from "./catalog.js";
import { commandView } from "./command.js";
import { deploymentsView } from "./deployments.js";
import { el } from "./dom.js";
import { hooksView } from "./hooks.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { overviewView } from "./overview.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { sourceView } from "./source.js";
import { workersView } from "./workers.js";

/** The views of a bucket: the name in the address, what it is called, the key that leads there after `g`, the view. */
export const SECTIONS = [
  { name: "", label: "Overview", key: "o", view: overviewView },
  { name: "deployments", label: "Deployments", key: "d", view: deploymentsView },
  {
    name: "jobs",
    label: "Jobs",
    key: "j",
    view: (main, page) => (page.rest.length > 0 ? jobView : jobsView)(main, page),
  },
  { name: "workers", label: "Workers", key: "w", view: workersView },
  {
    name: "runs",
    label: "Runs",
    key: "r",
    view: (main, page) => (page.rest.length > 0 ? runView : runsView)(main, page),
  },
  { name: "command", label: "Run command", key: "c", view: commandView },
  { name: "hooks", label: "Hooks", key: "h", view: hooksView },
  { name: "catalog", label: "Catalog", key: "k", view: catalogView },
  { name: "source", label: "Source", key: "s", view: sourceView },
];

/** Draws the view that an address names and answers it: `{title, refresh}`. */
export function viewAt(main, page) {
  if (page.known && page.bucketId === undefined) return bucketsView(main, page);
  const section = page.known ? SECTIONS.find(({ name }) => name === page.view) : undefined;
  if (section) return section.view(main, page);
  main.replaceChildren(
    el("h1", {}, "There is no such page"),
    el("p", {}, el("a", { href: "#/" }, "Go to the buckets")),
  );
  return { title: "No such page", refresh: async () => {} };
}
