import { address, get, keepQuery, listOf, queryOf } from "../base/api.js";
import { a, button, el, patch } from "../base/dom.js";
import { ago, duration, elapsed, number, plain, said, words } from "../base/text.js";
import { choice } from "../parts/form.js";
import { cancelButton } from "../parts/order.js";
import { empty, head, region } from "../parts/region.js";
import { badge, state, tag } from "../parts/state.js";
import { aboutOf, byOf, nameOf, repeatsOf } from "../run/words.js";

const PAGE_RUNS = 50;
const RUN_KINDS = (
  "push rollback build deploy drift health_check gc run_command hooks worker_trust worker_facts worker_uptime " +
  "worker_sysstat job_start job_stop job_restart job_reload job_status job_run snapshot_create snapshot_restore kv_rekey ca_rotate ssh_key_rotate"
).split(" ");
const FILTERS = { kind: RUN_KINDS, status: ["running", "succeeded", "failed", "cancelled"] };

/** The runs of a bucket, newest first. @param {import("../routes.js").Page} page */
export function runsView(page) {
  const look = { most: PAGE_RUNS };
  const read = async () => {
    const { kind, status } = Object.fromEntries(address().query);
    const runs = page.path(`/runs?${queryOf({ kind, status, limit: Math.min(look.most, 500) })}`);
    const [items, queue] = await Promise.all([listOf(runs, look.most), get(page.path("/queue"))]);
    return { cut: items.cut || items.length > look.most, items: items.slice(0, look.most), queue: queue.items };
  };
  const list = region(read, (data) => drawn(page, data, more), { name: "section.panel" });
  const total = el("span");
  function refresh() {
    const runs = page.bucket()?.summary?.totals?.runs;
    patch(total, runs !== undefined && `${number(runs)} in all`);
    return list.refresh();
  }
  function more() {
    look.most += PAGE_RUNS;
    list.refresh();
  }
  const narrow = Object.entries(FILTERS).map(([name, all]) => {
    const options = ["", ...all].map((one) => [one, words(one || "all")]);
    const choose = (value) => {
      keepQuery({ [name]: value });
      look.most = PAGE_RUNS;
      list.refresh();
    };
    return choice(words(name), options, page.query.get(name) ?? "", choose);
  });
  const element = el("div", head({ title: "Runs", line: total }), el("div.filters.panel.runs-filters", narrow), list.element);
  return { title: "Runs", element, fast: true, refresh };
}

function drawn(page, { items, cut, queue }, more) {
  const line = queue.length > 0 && el("p.meta.pad", { key: "queue" }, "In line: ", queue.flatMap(inLine));
  if (items.length === 0) return [line, empty("No such run.", el("a.button", { href: page.link("deployments") }, "Deploy"))];
  const heads = ["State", "What", "About", "By", "When", "Took"].map((text) =>
    el("th", { scope: "col", class: text === "Took" && "number" }, text),
  );
  const rows = items.map((run) => runRow(page, run));
  const parts = [el("caption.unseen", "Runs, newest first"), el("thead", el("tr", heads)), el("tbody", rows)];
  const note = el("p.meta", `The ${number(items.length)} newest are shown.`);
  return [
    line,
    el("div.table", { key: "table" }, el("table", parts)),
    cut && el("div.controls.pad", { key: "more" }, note, button("Show more", more)),
  ];
}

/** A start that waits until the bucket is free. */
function inLine({ kind, since }, index) {
  return [index > 0 && ", then ", words(kind), " ", elapsed(since)];
}

function runRow(page, run) {
  const { id, status, params, created_at: at, duration_ms: ms, error } = run;
  const cancel = () => cancelButton(page, run, { class: "small" });
  return el(
    "tr",
    { key: id },
    el("td", state(status)),
    el(
      "th",
      { scope: "row" },
      a(page.link("runs", [id]), nameOf(run)),
      params.dry_run && [" ", tag("changes nothing")],
      run.break_glass && [" ", badge("failed", "glass broken")],
    ),
    el(
      "td.about",
      el("span.one-line", said(aboutOf(run))),
      repeatsOf(run) && el("span.meta", repeatsOf(run)),
      error && el("span.one-line.error", { title: plain(error) }, said(error)),
    ),
    el("td", byOf(run)),
    el("td", ago(at)),
    el("td.number", status === "running" ? [elapsed(at), " ", cancel()] : duration(ms)),
  );
}
