import { call } from "./api.js";
import { drawList, el, tell } from "./dom.js";
import { status, time } from "./format.js";

const MOST = 500;

/** The view of all projects and their buckets. Where Activity shows nothing, it gets the newest run of all. */
export function bucketsView(main, activity) {
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const empty = el(
    "p",
    { class: "notice", hidden: true },
    "There are no buckets yet. POST /api/buckets makes one; the README shows how.",
  );
  const projects = el("div", { class: "projects" });
  main.replaceChildren(el("h1", {}, "Buckets"), problem, empty, projects);

  async function refresh() {
    try {
      const { items } = await call("GET", `/api/buckets?limit=${MOST}`);
      if (!projects.isConnected) return;
      tell(problem, "");
      empty.hidden = items.length > 0;
      drawList(projects, byProject(items), ({ name }) => name, projectSection);
      for (const { id, project, name } of items) activity.name(id, `${project} / ${name}`);
      const run = newestRun(items);
      if (run && activity.runId === null) activity.show(run.bucketId, run.id);
    } catch (error) {
      tell(problem, error.message);
    }
  }
  return { title: "Buckets", refresh };
}

function byProject(buckets) {
  const projects = Map.groupBy(buckets, ({ project }) => project);
  return [...projects]
    .map(([name, own]) => ({ name, buckets: own.sort((a, b) => a.name.localeCompare(b.name)) }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

function projectSection({ name, buckets }) {
  return el("section", {}, el("h2", {}, name), el("ul", { class: "cards" }, ...buckets.map(card)));
}

function card({ id, name, last_run: run }) {
  return el(
    "li",
    {},
    el("a", { href: `#/buckets/${id}` }, name),
    el("code", {}, id),
    run
      ? el("p", {}, status(run.status), ` ${run.kind}, `, time(run.created_at))
      : el("p", {}, "Nothing has run here yet."),
  );
}

function newestRun(buckets) {
  const runs = buckets
    .filter(({ last_run }) => last_run)
    .map((bucket) => ({ bucketId: bucket.id, ...bucket.last_run }));
  return runs.sort((a, b) => (a.created_at < b.created_at ? 1 : -1))[0];
}
