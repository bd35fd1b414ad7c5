// Freezes: windows in which a bucket refuses what changes its workers (docs/schedules.md).
import { el } from "../base/dom.js";
import { about, clockTime, said } from "../base/text.js";
import { mark } from "./state.js";

/** So long before its beginning a freeze is shown everywhere. */
const NEAR_MS = 864e5;
/** The starts that a freeze holds back, by their paths. */
const HELD_BACK = /^\/(deploy|source\/rollback|hooks|run_command|jobs\/[^/]+\/run|snapshots\/[^/]+\/restore)$/;

/** The freeze of a bucket that is on, or begins within a day; undefined where there is none. */
export function freezeIn(bucket) {
  const [now, ahead] = [Date.now(), bucket?.summary?.freezes ?? []];
  return ahead.find(({ from, to }) => Date.parse(to) > now && Date.parse(from) - now < NEAR_MS);
}

/** Whether a freeze holds a start back. */
export function isHeldBack({ path, body }) {
  return HELD_BACK.test(path) && !(path === "/deploy" && body?.dry_run);
}

/** `Frozen until 06:00`, or in how long it begins. */
export function freezeText({ from, to }) {
  const begins = Date.parse(from) - Date.now();
  return begins > 0 ? `Freeze in ${about(begins)}` : `Frozen until ${clockTime(to)}`;
}

/** A line about the freeze of a bucket, for heads and questions; null where none is near. */
export function freezeLine(bucket) {
  const found = freezeIn(bucket);
  return found ? el("p.freeze", { key: "freeze" }, toldOf(found)) : null;
}

/** All freezes that are known of, as a list. */
export function freezeList(freezes) {
  return el("ul", ...freezes.map((one) => el("li.freeze", { key: one.from }, toldOf(one))));
}

function toldOf(one) {
  const when = Date.parse(one.from) > Date.now() && `${clockTime(one.from)} to ${clockTime(one.to)}`;
  return [mark("soon"), el("b", freezeText(one)), when && el("span", when), el("span", said(one.reason))];
}
