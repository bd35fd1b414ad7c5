import { link } from "../base/api.js";
import { a, button, el, patch } from "../base/dom.js";
import { number, plain } from "../base/text.js";
import { popupButton, wayItem } from "../parts/dialog.js";
import { freezeIn, freezeText } from "../parts/freeze.js";
import { icon, mark } from "../parts/state.js";
import { troublesOf } from "../parts/trouble.js";
import { GROUPS, SECTIONS, sectionAt } from "../routes.js";
import { activity } from "./activity.js";
import { showKeys } from "./keys.js";
import { openGuarded } from "./session.js";

const [where, sections] = ["where", "sections"].map((id) => document.getElementById(id));

/** Draws where the page is, and the views of the bucket with what is counted beside them. */
export function drawNavigation({ place, bucket, buckets }) {
  sections.hidden = !place.bucketId;
  patch(where, placeOnTop(place, bucket, buckets));
  if (!place.bucketId) return;
  const current = sectionAt(place);
  const groups = Object.entries(GROUPS).map(([name, own]) => [
    name !== "" && el("h2", { key: name }, name),
    own.map((section) => linkTo(section, place.bucketId, section === current, bucket?.summary)),
  ]);
  const end = [
    el("a.last", { href: "/docs/", key: "api", onclick: openDocs }, el("span", "API"), el("span.total.code", "/docs")),
    button([el("span", "Keys"), el("kbd", "?")], showKeys, { key: "keys" }),
  ];
  patch(sections, groups, end, onPhone(place.bucketId));
}

/** A phone has places for a few views, the log, and a menu of all others. */
function onPhone(bucketId) {
  const wayTo = (/** @type {any} */ { name, rest, label }) => wayItem(label, link(bucketId, name, rest));
  const others = () => SECTIONS.filter(({ icon: sign }) => !sign).map(wayTo);
  const more = popupButton([icon("menu"), "More"], others, { menu: true, class: "place", key: `more ${bucketId}` });
  return [button([icon("log"), "Log"], activity.toggle, { class: "place", key: "log" }), more];
}

function openDocs(event) {
  event.preventDefault();
  openGuarded("/docs/");
}

/** @param {import("../routes.js").Section} section */
function linkTo({ name, rest, label, total, trouble, icon: sign }, bucketId, isCurrent, summary) {
  const counted = troubleIn(summary, trouble);
  return el(
    "a",
    { href: link(bucketId, name, rest), "aria-current": isCurrent && "page", class: sign && "place", key: label },
    sign && icon(sign),
    el("span", label),
    counted > 0 && el("span.trouble", { class: trouble }, mark(trouble, { label: `${trouble}:` }), number(counted)),
    summary?.totals?.[total] !== undefined && el("span.total", number(summary.totals[total])),
  );
}

/** What of a summary a section's trouble is. */
function troubleIn(summary, trouble) {
  if (!summary?.problems || !trouble) return 0;
  if (trouble === "soon") return summary.certs.total;
  if (trouble === "undelivered") return summary.messages?.failed ?? 0;
  const own = troublesOf(summary).items.filter(({ kind, job }) => kind === trouble && (trouble === "failed" || !job));
  return trouble === "failed" ? new Set(own.map(({ job }) => job)).size : own.length;
}

function placeOnTop({ bucketId, view, rest }, bucket, buckets) {
  if (!bucketId) return [el("a", { href: "#/", "aria-current": view === "" && "page" }, "Buckets")];
  const { name = "…", project = "…" } = bucket ?? buckets.find(({ id }) => id === bucketId) ?? {};
  const wayOf = (one) => wayItem(`${one.project} / ${one.name}`, link(one.id, one.id === bucketId ? "" : view));
  const others = () => buckets.map(wayOf);
  const about = { menu: true, class: "quiet", "aria-label": `Bucket ${name}, switch` };
  const switcher = popupButton([el("b", name), " ▾"], others, about);
  switcher.own = true;
  switcher.key = `${bucketId} ${name} ${buckets.length} ${view}`;
  const deeper = view === "runs" &&
    rest[0] && [slash(), a(link(bucketId, "runs"), "Runs"), slash(), el("span.code", `…${rest[0].slice(-8)}`)];
  const freeze = freezeIn(bucket);
  const ofFreeze = freeze && { href: link(bucketId, "schedules"), title: plain(freeze.reason), key: "freeze" };
  const cold = freeze && el("a.badge.soon", ofFreeze, mark("soon"), freezeText(freeze));
  return [a("#/", "Buckets"), slash(), el("span", project), slash(), switcher, deeper, cold];
}

function slash() {
  return el("span", "/");
}
