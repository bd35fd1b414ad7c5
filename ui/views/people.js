import { get, listOf } from "../base/api.js";
import { el, facts } from "../base/dom.js";
import { isAdmin, person } from "../base/person.js";
import { ago, said } from "../base/text.js";
import { ask, command } from "../parts/dialog.js";
import { orderButton } from "../parts/order.js";
import { head, region, tabs, viewOf } from "../parts/region.js";
import { dataTable, listing } from "../parts/table.js";

const DAY_S = 86_400;
/** No role is above one's own. */
const ROLES_TO_GIVE = ["read", "operate", "deploy", "admin"];
const ALL = "all buckets";
const WAYS = ["common", "own", "none"];

/** Who may use the server: the tokens of people and programs, and the browsers that are signed in. */
export function peopleView(page) {
  const isTokens = page.rest[0] === undefined && isAdmin();
  const labels = { "": isAdmin() && "Tokens", sessions: "Sessions" };
  const links = tabs(labels, isTokens ? "" : "sessions", (name) => `#/people${name && `/${name}`}`);
  const line = `You are ${person.name}, with the role ${person.role}${person.buckets ? " in some buckets" : ""}.`;
  const list = isTokens ? tokenList(page) : sessionList(page);
  const controls = isTokens && newToken(page, () => list.data?.names ?? {});
  return viewOf(isTokens ? "People" : "Sessions", [head({ title: "People", line, controls }), links], list);
}

function tokenList(page) {
  const table = dataTable({
    caption: "tokens",
    columns: ["name", "role", "buckets", "totp", "created_at", "expires_at", "last_used_on", "actions"],
    cells: {
      expires_at: ({ expired, expires_at: ends }) => (ends === null ? "never" : expired ? "has expired" : ago(ends)),
      actions: (token) => revokeButton(page, token),
    },
    labels: { totp: "TOTP" },
    none: "There is no token but the server's own.",
  });
  const read = async () => {
    const [{ items }, all] = await Promise.all([get("/api/tokens"), listOf("/api/buckets?limit=500")]);
    const names = Object.fromEntries(all.map(({ id, project, name }) => [id, `${project}/${name} …${id.slice(-8)}`]));
    const tokens = items.map((token) => ({ ...token, buckets: token.buckets?.map((id) => names[id] ?? id) ?? "all" }));
    return { tokens, names };
  };
  return region(read, ({ tokens }) => table.with(tokens));
}

function revokeButton(page, { name, id }) {
  const says = [`Ends ${name} and its sessions at once. Runs go on.`];
  const order = { method: "DELETE", path: `/api/tokens/${id}`, says, danger: name, action: "Revoke" };
  return orderButton(page, "Revoke …", order, { style: "small", free: true });
}

/** Asks for what the token may do, and shows it once. `namesOf` the buckets, by their ids. */
function newToken(page, namesOf) {
  const order = () => ({
    path: "/api/tokens",
    says: ["A token is a person or a program. It is shown once; the server keeps only its SHA-256."],
    asks: [
      { name: "name", label: "Name", required: true, hint: "Small letters, digits and . _ -" },
      { name: "role", label: "Role", options: ROLES_TO_GIVE },
      { name: "bucket", label: "Bucket", options: [ALL, ...Object.values(namesOf())], hint: "For several: ops tokens create" },
      { name: "days", label: "Days until it expires", type: "number", min: 1, hint: "Empty: never" },
      { name: "totp", label: "TOTP", options: WAYS, hint: "own: a secret of its own; none goes only with read" },
    ],
    body: ({ bucket, days, ...given }) => ({
      ...given,
      ...(bucket !== ALL && { buckets: Object.keys(namesOf()).filter((id) => namesOf()[id] === bucket) }),
      ...(days && { lifetime_s: days * DAY_S }),
    }),
    action: "Make the token",
  });
  const done = (made) => {
    page.refresh();
    // After the question has closed: it gives the focus back.
    setTimeout(() => showOnce(made));
  };
  return orderButton(page, "New token …", order, { style: "primary", free: true, done });
}

function showOnce({ name, token, totp_secret: secret, totp_uri: uri }) {
  const says = ["This is the only time that it is shown."];
  const fields = facts([
    ["The token", command(token, "token")],
    ["For the authenticator", secret && command(uri, "address")],
  ]);
  return ask({ title: `The token of ${name}`, says, fields, action: "I have it", leave: "" });
}

function sessionList(page) {
  return listing(async () => (await get("/api/sessions")).items, {
    caption: "sessions",
    columns: ["name", "address", "agent", "created_at", "last_used_at", "expires_at", "actions"],
    cells: {
      name: ({ name, current }) => [said(name), current && el("b", " (this one)")],
      actions: (session) => endButton(page, session),
    },
    labels: { agent: "Browser", created_at: "Signed in" },
  });
}

function endButton(page, { id, name }) {
  const says = [`Signs ${name} out in that browser. Runs go on.`];
  const order = { method: "DELETE", path: `/api/sessions/${encodeURIComponent(id)}`, says, action: "End the session" };
  return orderButton(page, "End …", order, { style: "small", free: true });
}
