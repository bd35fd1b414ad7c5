import { runsOf } from "../base/api.js";
import { a, alertPlace, button, el, patch } from "../base/dom.js";
import { ago, clockTime, count, dueText, duration, elapsed, listed, nameOf, number, tell } from "../base/text.js";
import { activity } from "../frame/activity.js";
import { attentionPanel, attentionRows } from "../parts/attention.js";
import { shortId } from "../parts/dialog.js";
import { freezeLine } from "../parts/freeze.js";
import { deleteItem, guide, renameOrder } from "../parts/guide.js";
import { reasonsOf } from "../parts/map/reason.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { railOf } from "../parts/rail.js";
import { head, region } from "../parts/region.js";
import { mark } from "../parts/state.js";
import { troublesOf } from "../parts/trouble.js";
import { deployedMap, deployOrder, redeployOrder } from "../run/orders.js";

const RUNS = 7;
/** The map is read again at the latest after that long; in between a run tells what it reaches. */
const MAP_MS = 10_000;
const wide = matchMedia("(width >= 2200px)");

/** The bucket at a glance: what is the matter, since when and why, and what to press. */
export function overviewView(page) {
  const look = { isOpen: false, withDismissed: false, mapOf: "", readAt: 0 };
  const map = deployedMap(page, sinceOf);
  const [top, needs, problem] = [el("div.headed"), el("div"), alertPlace()];
  const readRail = async () => ({ runs: await runsOf(page.bucketId, { limit: RUNS }), summary: page.bucket()?.summary });
  const rail = region(readRail, (data) => railOf(page, data), { name: "aside.rail" });
  const log = el("div.log-here");
  log.own = true;
  const columns = el("div.columns", el("div.stack", needs, problem, map.element), rail.element, log);
  const element = el("div.overview", top, columns);
  const placeLog = () => (wide.matches ? activity.mount(log) : undefined);
  wide.addEventListener("change", placeLog, { signal: page.signal });

  const reasonOf = reasonsOf(page, draw);

  function sinceOf(job, worker) {
    const isOf = ({ workers, jobs }) => workers.includes(worker) && jobs.includes(job);
    const one = troublesOf(page.bucket()?.summary).items.find(isOf);
    return one ? clockTime(one.since) : "";
  }

  function change(to) {
    Object.assign(look, to);
    draw();
  }

  function draw() {
    const bucket = page.bucket();
    if (!bucket) return;
    const { summary } = bucket;
    const isNew = !summary?.built_at;
    columns.hidden = isNew;
    if (isNew) return patch(top, guide(page, { ...bucket, workers: summary?.workers ?? 0 }));
    const { withDismissed } = look;
    const attention = attentionRows(page.bucketId, troublesOf(summary, summary.incidents.items), withDismissed);
    const show = () => change({ withDismissed: !withDismissed });
    patch(top, topOfBucket(page, bucket, attention, { map, show, isShown: withDismissed }));
    const onOpen = () => change({ isOpen: true });
    const retryOrder = (job) => () => redeployOrder([job], map);
    const options = { isOpen: look.isOpen, onOpen, onDismiss: draw, retryOrder, reasonOf, places: map };
    patch(needs, attentionPanel(page, attention, options));
    map.element.style.setProperty("--above", `${needs.offsetHeight}px`);
  }

  /** The map moves with the run that goes on, and is read again when something has ended. */
  async function readMap() {
    const { active_run: runId, last_run: last, summary } = page.bucket() ?? {};
    if (!summary?.built_at) return;
    const run = runId && (await page.get(`/runs/${runId}`));
    map.follow(run);
    const mapOf = JSON.stringify([runId, last?.id, last?.status, summary.built_at, runId ? "" : summary.counts]);
    if (mapOf === look.mapOf && Date.now() - look.readAt < MAP_MS) return;
    map.show(await page.get("/map"));
    Object.assign(look, { mapOf, readAt: Date.now() });
  }

  async function refresh() {
    draw();
    if (!page.bucket()?.summary?.built_at) return;
    const failed = (error) => tell(problem, `The map: ${error.message}`);
    const reading = readMap().then(() => tell(problem), failed);
    await Promise.all([reading, rail.refresh()]);
    draw();
  }

  setTimeout(placeLog);
  return { title: "Overview", element, refresh, fast: true };
}

function topOfBucket(page, bucket, attention, { map, show, isShown }) {
  const { summary, active_run: runId, last_run: last } = bucket;
  const [word, title] = overviewTitle(bucket, attention);
  const { dismissed } = attention;
  const hidden = button(`${number(dismissed)} dismissed, ${isShown ? "hide" : "show"}`, show, { class: "plain" });
  const parts = [
    attention.total > 0 && troubleText(attention.rows),
    runId && el("span", a(page.link("runs", [runId]), whatGoesOn(bucket)), ", ", elapsed(last?.created_at)),
    upToDate(summary, map),
    word === "ok" && lastDeploy(summary),
    dismissed > 0 && hidden,
  ];
  const line = parts.filter(Boolean).flatMap((part, index) => (index > 0 ? [" · ", part] : part));
  const controls = overviewControls(page, bucket, attention, map);
  return [head({ title, mark: mark(word, { large: true }), line, controls }), freezeLine(bucket)];
}

function whatGoesOn({ last_run: last, summary }) {
  return `${nameOf(summary.active_run ?? last)} goes on`;
}

/** What is the matter with the bucket: a state, and a sentence. */
function overviewTitle(bucket, { rows, total, dismissed }) {
  const { counts } = bucket.summary;
  const waiting = counts.new + counts.update;
  if (total > 0)
    return [rows[0]?.kind ?? "failed", `${count(total, "problem")} since ${clockTime(rows.map((one) => one.since).sort()[0])}`];
  if (bucket.active_run) return ["running", whatGoesOn(bucket)];
  if (dismissed > 0) return ["waiting", `${count(dismissed, "problem")} dismissed`];
  if (counts.allocations === 0) return ["waiting", "No job is on any worker"];
  if (counts.promoted === 0 && waiting > 0) return ["waiting", "Not deployed yet"];
  if (waiting > 0) return ["waiting", dueText(waiting)];
  return ["ok", "All well"];
}

function troubleText(rows) {
  const of = (kind) => rows.filter((one) => one.kind === kind && !one.incident);
  const jobs = (own) => new Set(own.map(({ job }) => job)).size;
  const told = (many, thing, is) => many > 0 && `${count(many, thing)} ${is}`;
  const [unhealthy, failed] = [true, false].map((found) => jobs(of("failed").filter(({ aspect }) => Boolean(aspect) === found)));
  const [silent, loaded] = ["unreachable", "soon"].map((kind) => of(kind).reduce((sum, one) => sum + one.worker_count, 0));
  const parts = [
    told(failed, "job", "failed"),
    told(unhealthy, "job", unhealthy === 1 ? "is unhealthy" : "are unhealthy"),
    told(silent, "worker", silent === 1 ? "is unreachable" : "are unreachable"),
    told(jobs(of("unsettled")), "job", "half-way"),
    told(jobs(of("hand")), "job", "changed by hand"),
    told(loaded, "worker", "with a high load"),
    told(rows.filter(({ incident }) => incident).length, "incident", "open"),
  ];
  return listed(parts.filter(Boolean), 6);
}

function upToDate({ counts, jobs, workers }, map) {
  const all = counts.allocations - counts.disabled;
  if (all === 0) return `${count(jobs, "job")}, ${count(workers, "worker")}`;
  // Nothing before the map is there.
  const { o: ok = 0, c: changed = 0 } = map.counts();
  const done = ok + changed || counts.promoted;
  const isDone = `${all === 1 ? "is" : "are"} up to date`;
  if (done < all) return `${number(done)} of ${count(all, "allocation")} ${isDone}`;
  return `${count(all, "allocation")} of ${count(jobs, "job")} on ${count(workers, "worker")} ${isDone}`;
}

function lastDeploy({ last_deploy: last, revision }) {
  if (!last) return "";
  const took = last.finished_at && duration(Date.parse(last.finished_at) - Date.parse(last.created_at));
  return ["last deploy ", ago(last.created_at), took && `, ${took}`, revision && [", revision ", shortId(revision.id)]];
}

function overviewControls(page, bucket, { rows }, map) {
  const jobs = [...new Set(rows.filter(({ job, aspect }) => job && !aspect).map(({ job }) => job))];
  const silent = rows.filter(({ kind }) => kind === "unreachable").flatMap(({ workers }) => workers);
  const unhealthy = [...new Set(rows.filter(({ kind, job }) => kind === "failed" && job).map(({ job }) => job))];
  const options = { style: bucket.active_run ? "" : "primary", again: true };
  const again = () => {
    if (jobs.length > 0) return orderButton(page, "Retry what failed …", () => redeployOrder(jobs, map), options);
    if (silent.length > 0) return orderButton(page, "Try again", { path: "/workers/uptime", body: { workers: silent } }, options);
    const check = { path: "/health_check", body: { jobs: unhealthy } };
    return unhealthy.length > 0 && orderButton(page, "Check again", check, options);
  };
  const retry = rows.length > 0 && again();
  const deploy = orderButton(page, "Deploy …", () => deployOrder({}), { style: retry ? "" : options.style });
  const items = () => [
    orderItem(page, "Build", { path: "/build" }),
    orderItem(page, "Check for drift", { path: "/drift" }),
    curlItem(page, { path: "/deploy" }),
    orderItem(page, "Rename …", () => renameOrder(page), { free: true }),
    el("hr"),
    deleteItem(page),
  ];
  return [retry, deploy, moreMenu(items)];
}
