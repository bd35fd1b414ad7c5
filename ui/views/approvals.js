import { a, el } from "../base/dom.js";
import { has, person } from "../base/person.js";
import { ago, count, listed, said, words } from "../base/text.js";
import { moreMenu, orderButton, orderItem, startPathOf } from "../parts/order.js";
import { head, region, viewOf } from "../parts/region.js";
import { state } from "../parts/state.js";
import { dataTable } from "../parts/table.js";
import { aboutOf } from "../run/words.js";

const LESS = "What is proposed needs this number too.";

/** What is proposed in a bucket, who has approved it, and what may start. @param {import("../routes.js").Page} page */
export function approvalsView(page) {
  const table = dataTable({
    caption: "proposals",
    columns: ["what", "state", "proposed_by", "proposed_at", "approvals", "hosts", "expires_at", "actions"],
    cells: {
      what: (one) => whatOf(page, one),
      state: (one) => stateOf(page, one),
      approvals: approvalsOf,
      hosts: ({ hosts }) => el("span.meta", count(hosts.length, "worker"), hosts.length > 0 && `: ${listed(hosts)}`),
      expires_at: ({ ended, expires_at: at }) => (ended ? "" : ago(at)),
      actions: (one) => proposalOrders(page, one),
    },
    labels: { what: "Run", hosts: "On" },
    none: "Nothing is proposed. A run that needs approval offers to propose it.",
  });
  const read = () => Promise.all([page.list("/proposals?limit=200", 200), page.get()]);
  const list = region(read, ([proposals, { approvals: required }]) => [
    el("p", { key: "rule" }, ruleOf(required), " ", numberButton(page, required)),
    table.with(proposals),
  ]);
  const line = "Runs that wait for the approval of others. An approval holds for exactly this run, once, for a day.";
  return viewOf("Approvals", head({ title: "Approvals", line }), list);
}

function ruleOf(required) {
  if (required === 0) return "In this bucket nothing needs approval.";
  const others = required === 1 ? "1 other person" : `${required} other people`;
  return `Deploys, rollbacks, hooks and commands in this bucket need the approval of ${others}.`;
}

function numberButton(page, required) {
  const order = {
    method: "PUT",
    path: "",
    says: ["How many other people must approve deploys, rollbacks, hooks and commands here?", required > 0 && LESS],
    asks: [{ name: "approvals", label: "Approvals", options: ["0", "1", "2"], value: String(required) }],
    body: ({ approvals }) => ({ approvals: Number(approvals) }),
    action: "Set the number",
  };
  return orderButton(page, "Change …", order, { style: "small", free: true });
}

function whatOf(page, { kind, params, reason }) {
  const about = params.plan ? a(page.link("runs", [params.plan]), "its plan") : said(aboutOf({ params }));
  return [el("b", words(kind)), " ", about, reason && el("p.small", said(reason))];
}

function stateOf(page, { state: word, missing, ended }) {
  const lacks = word === "open" && `: ${count(missing, "approval")} missing`;
  const why = ended?.why && el("p.meta", said(ended.why));
  const run = ended?.run_id && el("a.code", { href: page.link("runs", [ended.run_id]) }, ` …${ended.run_id.slice(-8)}`);
  return [state(word), lacks, run, ended?.by && [" by ", said(ended.by)], why];
}

function approvalsOf({ approvals }) {
  return approvals.map(({ by, at, counts }) => el("span", said(by), " ", ago(at), !counts && el("b", " (counts no more)"), " "));
}

/** What the person may do with a proposal; who proposed it does not approve it. */
function proposalOrders(page, one) {
  const { id, kind, state: word, proposed_by: by, required, hosts, reason } = one;
  if (!["open", "approved"].includes(word) || !has("deploy")) return null;
  const isOwn = by.toLowerCase() === person.name.toLowerCase();
  const where = `Proposed by ${by}, for ${count(hosts.length, "worker")}.`;
  const what = [whatOf(page, { ...one, reason: "" }), reason && said(reason), where];
  const path = `/proposals/${id}`;
  const says = [...what, "Approves exactly this, for a day."];
  const approve = { path: `${path}/approve`, says, action: "Approve" };
  const reject = {
    path: `${path}/reject`,
    says: ["Ends the proposal. The reason is shown to who proposed it."],
    asks: [{ name: "reason", label: "Reason", required: true }],
    action: "Reject",
  };
  const withdraw = { method: "DELETE", path, says: ["Ends the proposal."], action: "Withdraw" };
  const start = { path: startPathOf(kind), body: { proposal: id }, says: what, action: "Start" };
  const free = { free: true };
  const mayWithdraw = isOwn || has("admin");
  const items = () => [orderItem(page, "Reject …", reject, free), mayWithdraw && orderItem(page, "Withdraw …", withdraw, free)];
  return el("span.controls", [
    word === "approved" && orderButton(page, "Start …", start, { style: "small" }),
    !isOwn && required > 0 && orderButton(page, "Approve …", approve, { style: "small", free: true }),
    moreMenu(items, "More orders of this proposal"),
  ]);
}
