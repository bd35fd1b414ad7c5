// Ctrl+K: goes to any bucket, view, job, worker, run or line, and starts what one may start.
import { bucketPath, get, link, listOf, pageAt } from "../base/api.js";
import { el, patch } from "../base/dom.js";
import { has, lackedRole } from "../base/person.js";
import { fits, nameOf, plain } from "../base/text.js";
import { openDialog } from "../parts/dialog.js";
import { give } from "../parts/order.js";
import { mark, tag } from "../parts/state.js";
import { SECTIONS } from "../routes.js";
import { activity } from "./activity.js";

const MOST_MATCHES = 12;
const MOST_NAMES = 5_000;

/** Runs that need no answer to a question of their own, by their path. */
const STARTS = [
  { label: "Build", path: "/build" },
  { label: "Plan", path: "/deploy", body: { dry_run: true } },
  { label: "Check health", path: "/health_check" },
  { label: "Check for drift", path: "/drift" },
  { label: "Read facts of all workers", path: "/workers/facts" },
  { label: "Read uptime of all workers", path: "/workers/uptime" },
  { label: "Read load of all workers", path: "/workers/sysstat" },
  { label: "Create a snapshot", path: "/snapshots" },
];

const FORM_VIEWS = { "Deploy …": "deployments", "Run a command …": "command", "Run a hook …": "hooks" };

/** Opens the palette on Ctrl+K and on its button; `shownOf` says what the page shows. */
export function startPalette(shownOf) {
  const open = () => openPalette(shownOf());
  document.getElementById("go-to").onclick = open;
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    event.preventDefault();
    if (!document.querySelector("dialog[open]")) open();
  });
}

function openPalette(shown) {
  if (!shown.session) return;
  const look = { entries: fixedEntries(shown), found: [], at: 0 };
  const list = el("ul", { role: "listbox", id: "palette-list", "aria-label": "Where to" });
  const placeholder = "Bucket, view, job, worker, end of a run's id, :line, or what to start";
  const about = { role: "combobox", "aria-label": "Go to", "aria-controls": "palette-list", "aria-expanded": "true" };
  const input = el("input", { type: "search", placeholder, autocomplete: "off", spellcheck: "false", ...about });
  input.oninput = () => draw(0);
  input.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) draw((look.at + by + look.found.length) % Math.max(1, look.found.length));
    else if (event.key === "Enter") choose(look.found[look.at]);
    if (by || event.key === "Enter") event.preventDefault();
  };
  function draw(at) {
    const typed = input.value.trim().toLowerCase();
    Object.assign(look, { found: matching(look.entries, typed), at });
    const items = look.found.map((entry, index) => {
      const chosen = { id: `palette-${index}`, "aria-selected": String(index === at), onclick: () => choose(entry) };
      const signs = [entry.state && mark(entry.state), el("span", plain(entry.label)), tag(entry.kind)];
      return el("li", { role: "option", ...chosen }, signs);
    });
    patch(list, items.length > 0 ? items : el("li.meta", "Nothing is called so."));
    input.setAttribute("aria-activedescendant", look.found.length > 0 ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }
  function choose(entry) {
    if (!entry) return;
    dialog.close();
    entry.act();
  }
  const dialog = openDialog({ class: "palette wide", "aria-label": "Go to" }, [input, list]);
  dialog.onclick = ({ target }) => target === dialog && dialog.close();
  draw(0);
  readEntries(shown).then((more) => {
    look.entries.push(...more);
    draw(look.at);
  });
}

function matching(entries, typed) {
  const line = /^:(\d+)$/.exec(typed);
  if (line) return [{ label: `Line ${line[1]} of the log`, kind: "line", act: () => activity.goTo(Number(line[1])) }];
  const found = entries.filter(({ label, more = "" }) => fits(`${label} ${more}`, typed));
  const begins = ({ label }) => (label.toLowerCase().startsWith(typed.split(/\s/, 1)[0]) ? 0 : 1);
  return found.sort((one, other) => begins(one) - begins(other)).slice(0, MOST_MATCHES);
}

function paletteEntry(kind, label, hash, about = {}) {
  return { kind, label, ...about, act: () => (location.hash = hash) };
}

function bucketEntries(buckets) {
  return buckets.map(({ id, project, name }) => paletteEntry("bucket", `${project} / ${name}`, link(id), { more: id }));
}

/** What is known without asking: views, buckets, and what can be started. */
function fixedEntries({ place: { bucketId }, buckets, bucket }) {
  const all = [paletteEntry("view", "All buckets", "#/"), ...bucketEntries(buckets)];
  if (!bucketId) return all;
  const page = { ...pageAt({ bucketId }), nameOfBucket: () => bucket?.name };
  const startOf = ({ label, ...order }) => ({ kind: "start", label, act: () => give(page, label, order) });
  const forms = Object.entries(FORM_VIEWS).map(([label, view]) => paletteEntry("start", label, link(bucketId, view)));
  return [
    ...SECTIONS.map(({ name, rest, label }) => paletteEntry("view", label, link(bucketId, name, rest))),
    ...STARTS.filter((order) => !lackedRole(order)).map(startOf),
    ...(has("deploy") ? forms : []),
    ...all,
  ];
}

/** Jobs, workers and runs of the bucket; the runs are found by the ends of their ids. */
async function readEntries({ place: { bucketId }, buckets }) {
  const read = (rest, most = MOST_NAMES) => listOf(bucketPath(bucketId, rest), most).catch(() => []);
  const known = buckets.length > 0 ? [] : bucketEntries((await get("/api/buckets?limit=500")).items);
  if (!bucketId) return known;
  const [jobs, workers, runs] = await Promise.all([read("/cat/jobs"), read("/cat/workers"), read("/runs?limit=500", 500)]);
  const workerOf = ({ worker_ip: worker, hostname: more = "" }) =>
    paletteEntry("worker", worker, link(bucketId, "workers", [worker]), { more });
  const runOf = ({ id, status: state, ...run }) =>
    paletteEntry("run", `${nameOf(run)} …${id.slice(-8)}`, link(bucketId, "runs", [id]), { more: id, state });
  const jobOf = ({ job }) => paletteEntry("job", job, link(bucketId, "jobs", [job]));
  return [...known, ...jobs.map(jobOf), ...workers.map(workerOf), ...runs.map(runOf)];
}
