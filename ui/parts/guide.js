import { link } from "../base/api.js";
import { el } from "../base/dom.js";
import { isAdmin } from "../base/person.js";
import { ago, prose, said } from "../base/text.js";
import { command, copying } from "./dialog.js";
import { orderButton, orderItem } from "./order.js";
import { icon, mark } from "./state.js";

const ABOUT =
  "A bucket is the workspace of one fleet: its jobs, templates and workers. You push it from your machine; this server " +
  "builds it and deploys it over SSH.";
const PUSH =
  "In an empty folder on your machine. Put your workers into `workspace/workers.json` and a job into `workspace/jobs/`, then push.";

/**
 * The three steps to a first deploy, with the commands for this server: made for the buckets where there is none, and for a
 * bucket that nothing was pushed to. A step that is done has a tick; the page goes on by itself.
 * @param {any} page
 * @param {any} bucket null where there is none; `{ id, project, name, created_at?, workers }`
 */
export function guide(page, bucket) {
  const isPushed = bucket?.workers > 0;
  const current = [bucket !== null, isPushed, false].indexOf(false);
  const steps = [createStep(page, bucket), pushStep(bucket), planStep(page, isPushed)];
  const items = steps.map(({ title, told, content }, index) => {
    const [isDone, isCurrent] = [index < current, index === current];
    const number = el("b.step", { class: isCurrent && "current" }, index + 1);
    const sign = isDone ? mark("changed", { label: "done", large: true }) : number;
    return el("li", { key: title }, sign, el("div", el("h2", title, el("span.meta", isDone && told)), isCurrent && content));
  });
  return el(
    "div.guide",
    el("h1", bucket ? ["Deploy ", said(bucket.name), " for the first time"] : "Deploy your first bucket"),
    el("p.meta", ABOUT),
    el("ol.panel", items),
    el("p.meta", prose("No workers at hand? `npm run demo` makes a bucket with three workers on this machine.")),
  );
}

function createStep(page, bucket) {
  const told = bucket && [said(`${bucket.project}/${bucket.name}`), bucket.created_at && [", ", ago(bucket.created_at)]];
  const content = [el("p", "It gets an id, a certificate authority and keys of its own."), newBucketButton(page, "primary")];
  return { title: "Create a bucket", told, content };
}

function pushStep(bucket) {
  const text = [
    "export OPS_SERVE_TOKEN=…   # the token you signed in with",
    "ops init",
    `ops push ${location.origin} \\`,
    `  --bucket ${bucket?.id}`,
  ].join("\n");
  const copy = copying(icon("copy"), () => text, { class: "quiet small", "aria-label": "Copy these commands" });
  return {
    title: "Push your source",
    told: "built",
    content: [
      el("p", prose(PUSH)),
      el("div.commands", el("pre", text), copy),
      el("p.meta", mark("running"), " Waits for a push. This page goes on by itself."),
    ],
  };
}

function planStep(page, isPushed) {
  const done = ({ run_id: id }) => (location.hash = page.link("runs", [id]));
  const plan = { path: "/deploy", body: { dry_run: true } };
  return {
    title: "Look at the plan, then deploy",
    content: [
      el("p", "The plan says what would change on which worker, and changes nothing."),
      isPushed && orderButton(page, "Plan", plan, { style: "primary", done }),
    ],
  };
}

/** How a source is pushed to a bucket. */
export function pushCommand({ bucketId }) {
  return command(`ops push ${location.origin} --bucket ${bucketId}`);
}

/** The names of a bucket, to fill in. */
const BUCKET_NAMES = [
  { name: "project", label: "Project", required: true },
  { name: "name", label: "Name", required: true },
];

/** Gives a bucket other names. */
export function renameOrder(page) {
  const asks = BUCKET_NAMES.map((field) => ({ ...field, value: page.bucket()[field.name] }));
  return { method: "PUT", path: "", says: ["Only the name changes."], asks, action: "Rename" };
}

/** Deletes the bucket, as an entry of a menu. */
export function deleteItem(page) {
  const removes = `Removes ${page.bucketId} from this server, with its secrets and history. This cannot be undone.`;
  const says = [removes, "Nothing is stopped on the workers."];
  const order = { method: "DELETE", path: "", danger: true, action: "Delete the bucket", says };
  const done = () => (location.hash = "#/");
  return orderItem(page, "Delete the bucket …", order, { dangerous: true, free: true, done });
}

/** Asks for project and name, makes a bucket, and goes there. */
export function newBucketButton(page, style) {
  if (!isAdmin()) return null;
  const create = {
    path: "/api/buckets",
    says: ["The source comes with the first push."],
    asks: [...BUCKET_NAMES, { name: "id", label: "Id", hint: "A UUID; empty for a new one" }],
    action: "Create bucket",
  };
  const done = ({ id }) => (location.hash = link(id));
  return orderButton({ ...page, bucketId: "", path: (path) => path }, "New bucket …", create, { style, free: true, done });
}
