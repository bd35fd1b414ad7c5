import { a, el } from "./base/dom.js";
import { approvalsView } from "./views/approvals.js";
import { auditView } from "./views/audit.js";
import { bucketsView } from "./views/buckets.js";
import { catalogView } from "./views/catalog.js";
import { commandView } from "./views/command.js";
import { deploymentsView } from "./views/deployments.js";
import { hooksView } from "./views/hooks.js";
import { jobsView, jobView } from "./views/jobs.js";
import { overviewView } from "./views/overview.js";
import { peopleView } from "./views/people.js";
import { runView } from "./views/run.js";
import { runsView } from "./views/runs.js";
import { sourceView } from "./views/source.js";
import { workersView, workerView } from "./views/workers.js";
import { incidentsView } from "./watch/messages.js";
import { schedulesView } from "./watch/schedules.js";

/**
 * A view of the navigation: its part of the address and what follows there, its function (`one` is the function for one of its
 * things), its key, what is counted beside its name, and its icon where a phone has a place for it.
 * @typedef {{ name: string, rest?: string[], make: MakeView, one?: MakeView, label: string, key: string,
 *   total?: string, trouble?: string, icon?: string }} Section
 */

/**
 * The views of a bucket in the order of the navigation, by their groups. Two lists of the catalog have places of their own.
 * @type {Record<string, Section[]>}
 */
export const GROUPS = {
  "": [
    { name: "", make: overviewView, label: "Overview", key: "o", icon: "overview" },
    { name: "deployments", make: deploymentsView, label: "Deployments", key: "d", icon: "deploy" },
    { name: "runs", make: runsView, one: runView, label: "Runs", key: "r", icon: "runs", total: "runs" },
  ],
  Fleet: [
    { name: "jobs", make: jobsView, one: jobView, label: "Jobs", key: "j", total: "jobs", trouble: "failed" },
    { name: "workers", make: workersView, one: workerView, label: "Workers", key: "w", total: "workers", trouble: "unreachable" },
    { name: "catalog", rest: ["certs"], make: catalogView, label: "Certificates", key: "t", total: "certs", trouble: "soon" },
    { name: "catalog", rest: ["kv"], make: catalogView, label: "Keys and values", key: "k", total: "kv" },
    { name: "catalog", make: catalogView, label: "Catalog", key: "l" },
  ],
  Act: [
    { name: "command", make: commandView, label: "Run command", key: "c" },
    { name: "hooks", make: hooksView, label: "Hooks", key: "h", total: "hooks" },
    { name: "schedules", make: schedulesView, label: "Schedules", key: "e" },
    { name: "incidents", make: incidentsView, label: "Incidents", key: "i", trouble: "undelivered" },
    { name: "approvals", make: approvalsView, label: "Approvals", key: "p" },
  ],
  History: [
    { name: "source", make: sourceView, label: "Source", key: "s", total: "revisions" },
    { name: "audit", make: auditView, label: "Audit", key: "a" },
  ],
};
/** All of them. */
export const SECTIONS = Object.values(GROUPS).flat();

/** The views of the server, by their part of the address. @type {Record<string, MakeView>} */
const SERVER_VIEWS = { "": bucketsView, people: peopleView, audit: auditView };

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
 * @property {(rest?: string, options?: import("./base/api.js").Options) => Promise<any>} get reads such a path
 * @property {(rest?: string, most?: number) => Promise<any[] & { cut: boolean }>} list reads the items of such a path
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
 * @property {boolean} [fast] is read again every second while a run goes on in the bucket
 *
 * @typedef {(page: Page) => View} MakeView
 */

/**
 * The function that makes the view of an address.
 * @param {ReturnType<typeof import("./base/api.js").address>} place
 * @returns {MakeView}
 */
export function viewAt(place) {
  const ofServer = place.known && !place.bucketId && SERVER_VIEWS[place.view];
  if (ofServer) return ofServer;
  const section = place.known && sectionAt(place);
  if (section) return (place.rest.length > 0 && section.one) || section.make;
  const way = el("p", a("#/", "Go to the buckets"));
  const what = !place.known && place.bucketId ? "bucket" : "page";
  return () => ({ title: `No such ${what}`, element: el("div", el("h1", `There is no such ${what}`), way) });
}
