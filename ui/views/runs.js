import { address, keepQuery, queryOf } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { duration, elapsed, nameOf, number, plain, prose, said, words } from "../base/text.js";
import { choice } from "../parts/form.js";
import { cancelButton } from "../parts/order.js";
import { empty, head, region, viewOf } from "../parts/region.js";
import { badge, tag } from "../parts/state.js";
import { newest } from "../parts/table.js";
import { aboutOf, byOf, repeatsOf } from "../run/words.js";

const PAGE_RUNS = 50;
const RUN_KINDS = (
  "push rollback build deploy drift health_check gc run_command hooks worker_trust worker_facts worker_uptime " +
  "worker_sysstat job_start job_stop job_restart job_reload job_status job_run snapshot_create snapshot_restore kv_rekey ca_rotate ssh_key_rotate"
).split(" ");
const FILTERS = { kind: RUN_KINDS, status: ["running", "succeeded", "failed", "cancelled"] };

/** The runs of a bucket, newest first, and the starts that wait in line. @param {import("../routes.js").Page} page */
export function runsView(page) {
  const read = async (most) => {
    const { kind, status } = Object.fromEntries(address().query);
    const runs = await page.list(`/runs?${queryOf({ kind, status, limit: Math.min(most, 500) })}`, most);
    const rows = runs.map((run) => ({ ...run, what: nameOf(run), about: aboutOf(run), by: byOf(run) }));
    return Object.assign(rows, { cut: runs.cut });
  };
  const goingOn = (run) => [elapsed(run.created_at), " ", cancelButton(page, run, { class: "small" })];
  const list = newest(PAGE_RUNS, read, {
    caption: "Runs",
    columns: ["what", "status", "about", "by", "created_at", "duration_ms"],
    labels: { created_at: "When", duration_ms: "Took" },
    cells: {
      what: (run) => whatOfRun(page, run),
      about: aboutCell,
      duration_ms: (run) => (run.status === "running" ? goingOn(run) : duration(run.duration_ms)),
    },
    none: empty("No such run.", el("a.button", { href: page.link("deployments") }, "Deploy")),
    tools: Object.entries(FILTERS).map(([name, all]) => {
      const options = ["", ...all].map((one) => [one, words(one || "all")]);
      const choose = (value) => {
        keepQuery({ [name]: value });
        list.again();
      };
      return choice(words(name), options, page.query.get(name) ?? "", choose);
    }),
  });
  const readTop = async () => ({ total: page.bucket()?.summary?.totals?.runs, queue: (await page.get("/queue")).items });
  const inLine = ({ kind, since }, index) => [index > 0 && ", then ", words(kind), " ", elapsed(since)];
  const drawTop = ({ total, queue }) => [
    head({ title: "Runs", line: total !== undefined && `${number(total)} in all` }),
    queue.length > 0 && el("p.meta", { key: "queue" }, "In line: ", queue.flatMap(inLine)),
  ];
  return { ...viewOf("Runs", region(readTop, drawTop, { name: "div", rows: 1 }), list), fast: true };
}

function whatOfRun(page, { id, what, params, break_glass: glass }) {
  const isDry = params.dry_run && [" ", tag("changes nothing")];
  return [a(page.link("runs", [id]), what), isDry, glass && [" ", badge("failed", "glass broken")]];
}

function aboutCell({ about, error, schedule }) {
  const repeats = repeatsOf({ schedule });
  return [
    about && el("span.one-line", said(about)),
    repeats && el("span.meta", repeats),
    error && el("span.one-line.error", { title: plain(error) }, prose(error)),
  ];
}
