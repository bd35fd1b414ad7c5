import { bucketPath, link } from "./base/api.js";
import { el } from "./base/dom.js";
import { bucketsView } from "./views/buckets.js";
import { overviewView } from "./views/overview.js";

/** @typedef {{ name: string, rest?: string[], label: string, key: string, group: string, load: (isOne: boolean) => Promise<any>, total?: string, trouble?: string }} Section */

const deployments = () => import("./views/deployments.js").then((it) => it.deploymentsView);
const catalog = () => import("./views/catalog.js").then((it) => it.catalogView);

/**
 * The views of a bucket in the order of the navigation. `total` and `trouble` name what is counted beside their names.
 * @type {Section[]}
 */
export const SECTIONS = [
  { name: "", label: "Overview", key: "o", group: "", load: async () => overviewView },
  { name: "deployments", label: "Deployments", key: "d", group: "", load: deployments },
  { name: "runs", label: "Runs", key: "r", group: "", total: "runs", load: runs },
  { name: "jobs", label: "Jobs", key: "j", group: "Fleet", total: "jobs", trouble: "failed", load: jobs },
  { name: "workers", label: "Workers", key: "w", group: "Fleet", total: "workers", trouble: "unreachable", load: workers },
  {
    name: "catalog",
    rest: ["certs"],
    label: "Certificates",
    key: "t",
    group: "Fleet",
    total: "certs",
    trouble: "soon",
    load: catalog,
  },
  { name: "catalog", rest: ["kv"], label: "Keys and values", key: "k", group: "Fleet", total: "kv", load: catalog },
  { name: "catalog", label: "Catalog", key: "l", group: "Fleet", load: catalog },
  { name: "command", label: "Run command", key: "c", group: "Act", load: command },
  { name: "hooks", label: "Hooks", key: "h", group: "Act", total: "hooks", load: hooks },
  { name: "source", label: "Source", key: "s", group: "History", total: "revisions", load: source },
  { name: "audit", label: "Audit", key: "a", group: "History", load: audit },
];

async function runs(isOne) {
  return isOne ? (await import("./views/run.js")).runView : (await import("./views/runs.js")).runsView;
}

async function jobs(isOne) {
  return isOne ? (await import("./views/job.js")).jobView : (await import("./views/jobs.js")).jobsView;
}

async function workers() {
  return (await import("./views/workers.js")).workersView;
}

async function command() {
  return (await import("./views/command.js")).commandView;
}

async function hooks() {
  return (await import("./views/hooks.js")).hooksView;
}

async function source() {
  return (await import("./views/source.js")).sourceView;
}

async function audit() {
  return (await import("./views/audit.js")).auditView;
}

/** The section of an address; undefined for the buckets, and where there is none. */
export function sectionAt({ bucketId, view, rest = [] }) {
  if (!bucketId) return undefined;
  const isAt = (one) => one.name === view && (!one.rest || one.rest[0] === rest[0]);
  return SECTIONS.find((one) => one.rest && isAt(one)) ?? SECTIONS.find(isAt);
}

/**
 * What a view gets.
 * @typedef {object} Page
 * @property {string} bucketId
 * @property {string} view
 * @property {string[]} rest the parts of the address behind the view
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal aborts when the view is left
 * @property {(rest?: string) => string} path of the API, below the bucket
 * @property {(view?: string, rest?: string[], query?: object) => string} link
 * @property {() => any} bucket the bucket and its summary, as read last; null before the first answer
 * @property {() => Promise<any>} refresh
 * @property {() => string} nameOfBucket
 * @property {(runId: string, at?: { line?: number, job?: string, worker?: string }) => void} showRun in Activity
 *
 * What a view is.
 * @typedef {object} View
 * @property {string} title of the window
 * @property {HTMLElement} element
 * @property {() => any} [refresh] reads again: after each change on the server, and every 10 s
 * @property {boolean} [queried] is made anew when the query of its address changes
 * @property {boolean} [fast] is read again every second while a run goes on in the bucket
 */

/**
 * Loads the view of an address.
 * @param {ReturnType<typeof import("./base/api.js").address>} place
 * @returns {Promise<(page: Page) => View>}
 */
export async function viewAt(place) {
  if (place.known && !place.bucketId) return bucketsView;
  const section = place.known && sectionAt(place);
  if (section) return await section.load(place.rest.length > 0);
  const way = el("p", el("a", { href: "#/" }, "Go to the buckets"));
  return () => ({ title: "No such page", element: el("div", el("h1", "There is no such page"), way) });
}

/** What a view gets, for an address. */
export function pageAt({ bucketId, view, rest, query }, shared) {
  return {
    ...{ bucketId, view, rest, query },
    path: (path = "") => (bucketId ? bucketPath(bucketId, path) : path),
    link: (name, ...more) => link(bucketId, name, ...more),
    ...shared,
  };
}
