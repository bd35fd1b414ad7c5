import { get, keepQuery, listOf, queryOf } from "../base/api.js";
import { el, facts } from "../base/dom.js";
import { ago, number, said, words } from "../base/text.js";
import { command } from "../parts/dialog.js";
import { choice } from "../parts/form.js";
import { head, region, viewOf } from "../parts/region.js";
import { newest } from "../parts/table.js";

const PAGE_LINES = 500;
/** What people ask an audit for, with the kinds of lines that tell it. */
const SUBJECTS = {
  done: ["What was done", "sign_in,sign_out,change,start,cancel,approval,token,key,restore,delete,outcome"],
  runs: ["Runs", "start,cancel,outcome,run_ended"],
  refused: ["What was refused", "refused"],
  server: ["The server itself", "server_start,server_stop,alive,sink"],
  all: ["Every line", ""],
};

/** Who did what, when, from where and with which outcome, in a bucket or on the whole server. @param {import("../routes.js").Page} page */
export function auditView(page) {
  const { bucketId } = page;
  const look = { subject: SUBJECTS[page.query.get("of")] ? page.query.get("of") : "done" };
  const read = async (most) => {
    const what = SUBJECTS[look.subject][1];
    const lines = await listOf(`/api/audit?${queryOf({ what, bucket: bucketId, limit: PAGE_LINES })}`, most);
    return Object.assign(auditRows(lines, look.subject), { cut: lines.cut });
  };
  const subjects = Object.entries(SUBJECTS).map(([name, [label]]) => [name, label]);
  const showSubject = (subject) => {
    look.subject = subject;
    keepQuery({ of: subject });
    list.again();
  };
  const list = newest(PAGE_LINES, read, {
    caption: "audit",
    columns: ["at", "who", "what", "outcome", "asked", "run", "from", "n"],
    cells: {
      what: ({ what, reason }) => [what, reason && el("b.failed", " glass broken")],
      asked: askedFor,
      run: ({ run, bucket }) => run && el("a.code", { href: `#/buckets/${bucket}/runs/${run}` }, `…${run.slice(-8)}`),
    },
    labels: { n: "Line" },
    none: "The audit has no such line.",
    tools: choice("Show", subjects, look.subject, showSubject),
    keyOf: ({ n }) => String(n),
  });
  const end = region(() => get("/api/audit/head"), auditEnd, { rows: 1 });
  const line = `What was done ${bucketId ? "in this bucket" : "on this server"}, and by whom`;
  return viewOf("Audit", head({ title: "Audit", line }), end, list);
}

/** Rows of what was asked for, each with its outcome; lines are the newest first. */
function auditRows(lines, subject) {
  const outcomes = new Map(lines.filter(({ what }) => what === "outcome").map((line) => [line.of, line]));
  const shown = subject === "all" ? lines : lines.filter(({ what }) => what !== "outcome");
  return shown.map(({ n, at, who = "", what, via = "", from = "", action, params, facts: known, reason, count, ...line }) => {
    const { outcome, error, run } = { ...outcomes.get(n), ...line };
    const times = count > 1 ? ` × ${number(count)}` : "";
    const place = [from, via && `(${via})`].filter(Boolean).join(" ");
    const asked = { action, params, facts: known, reason, error };
    return { n, at, who, what: words(what) + times, outcome, asked, reason, run, bucket: line.bucket, from: place };
  });
}

function askedFor({ asked: { action = "", ...more } }) {
  const told = JSON.stringify(more, null, 2);
  if (told === "{}") return el("code", said(action));
  return el("details", el("summary", el("code", said(action || "facts"))), el("pre.scroll", said(told)));
}

/** Where the audit ends: noted elsewhere, the hash shows later that nothing was cut off. */
function auditEnd({ n, at, hash, public_key: key, fingerprint, trouble }) {
  if (trouble) return el("p.notice", el("b.failed", "Nothing can be changed: "), said(trouble));
  return el(
    "details.panel.pad",
    el("summary", `Line ${number(n)} is the last one, `, ago(at), ". ", el("code", hash.slice(0, 16))),
    el("p", "Noted elsewhere, this hash shows later that nothing up to this line was cut off."),
    facts([
      ["Head", command(hash, "hash")],
      [`Public key (${fingerprint})`, command(key, "key")],
      ["On any machine, with copies of the files", command(`ops audit verify FOLDER --public-key ${key} --head ${hash}`)],
    ]),
  );
}
