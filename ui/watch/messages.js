// What is or was wrong in a bucket, and who was told of it (docs/messages.md).
import { a, el } from "../base/dom.js";
import { ago, listed, number, said } from "../base/text.js";
import { toast } from "../parts/dialog.js";
import { orderButton } from "../parts/order.js";
import { head, tabbed, viewOf } from "../parts/region.js";
import { state } from "../parts/state.js";
import { listing, reasonLine } from "../parts/table.js";

const MOST_LISTED = 1_000;
/** @type {Parameters<typeof tabbed>[1]} */
const MESSAGE_TABS = { "": ["Incidents", incidentList], messages: ["Messages", messageList], targets: ["Targets", targetList] };

/** Incidents, the messages that tell of them, and the targets that get these. @param {import("../routes.js").Page} page */
export function incidentsView(page) {
  const [choices, listOfTab] = tabbed(page, MESSAGE_TABS);
  const line = "What was found wrong, and who was told of it, by workspace/notify.json.";
  return viewOf("Incidents", [head({ title: "Incidents", line }), choices], listOfTab(page));
}

function incidentList(page) {
  const read = async () => {
    const all = await page.list("/incidents?limit=500", MOST_LISTED);
    for (const one of all) one.state = one.over_at ? "over" : "ongoing";
    return all;
  };
  return listing(read, {
    caption: "incidents",
    columns: ["subject", "state", "opened_at", "place_count", "told", "run_id"],
    labels: { opened_at: "Since", place_count: "Places", run_id: "Found by" },
    cells: {
      subject: ({ subject, reason }) => [said(subject), reasonLine(reason)],
      opened_at: ({ opened_at: at, over_at: end }) => [ago(at), end && el("p.small.whole", "over ", ago(end))],
      place_count: ({ place_count: all, left_count: left }) => [
        number(all),
        left > 0 && left < all && el("span.meta", `, ${number(all - left)} well again`),
      ],
      told: ({ told }) => (told.length > 0 ? said(listed(told)) : el("span.meta", "nobody")),
    },
    none: "Nothing was wrong.",
  });
}

function messageList(page) {
  return listing(() => page.list("/messages?limit=500", MOST_LISTED), {
    caption: "messages",
    columns: ["subject", "state", "target", "at", "attempts", "next_at", "actions"],
    labels: { at: "Made" },
    cells: {
      state: ({ state: word, sent_at: at }) => [state(word), at && el("span.meta", " ", ago(at))],
      subject: ({ subject, error }) => [said(subject), error && el("p.small.error", said(error))],
      actions: (one) => one.state !== "sent" && retryOf(page, one),
    },
    none: "No message was made.",
  });
}

function retryOf(page, { id, state: word }) {
  const order = { path: `/messages/${encodeURIComponent(id)}/retry` };
  return orderButton(page, word === "failed" ? "Retry" : "Send now", order, { style: "small", free: true });
}

function targetList(page) {
  return listing(async () => (await page.get("/messages/targets")).items, {
    caption: "targets",
    columns: ["name", "kind", "address", "body", "events", "waiting", "failed", "last_sent_at", "actions"],
    labels: { events: "Is told of" },
    cells: {
      address: ({ address }) => el("code", said(address)),
      events: ({ events }) => listed(events, 4).replaceAll("_", " ") || "nothing: no rule names it",
      failed: ({ failed }) =>
        failed > 0 ? a(page.link("incidents", ["messages"], { state: "failed" }), state("failed", String(failed))) : "0",
      last_sent_at: ({ last_sent_at: at }) => (at ? ago(at) : "never"),
      actions: ({ name }) => testOf(page, name),
    },
    none: "Nobody is told: write targets and rules into workspace/notify.json, then push it.",
    keyOf: ({ name }) => name,
  });
}

/** Sends a test now, and says what became of it. */
function testOf(page, name) {
  const done = ({ error }) => {
    toast(error ? `${name} did not take the test: ${error}` : `${name} has taken the test.`, { error: Boolean(error) });
    page.refresh();
  };
  return orderButton(page, "Test", { path: "/messages/test", body: { target: name } }, { style: "small", free: true, done });
}
