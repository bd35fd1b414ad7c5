import { DAY_IN_MS } from "../codec/calendar/zone.ts";
import { type Calendar, calendarOf, type Rhythm } from "./calendar.ts";

/** Windows in which nothing is deployed: one, or one each time that a calendar says. */
export type FreezeRule = { reason: string } & ({ fromMs: number; toMs: number } | { rhythm: Rhythm; forMs: number });

/** One window; it ends before `toMs`. */
export interface FreezeWindow {
  fromMs: number;
  toMs: number;
  reason: string;
}

/** How long before its beginning a freeze is shown. */
const SHOWN_BEFORE_MS = 7 * DAY_IN_MS;
/** Repeated windows that follow on one another are one, but are looked at no further than this. */
const MOST_JOINED = 100;

/** The window that is open now; of several the one that ends last. */
export function openFreeze(rules: readonly FreezeRule[], now: number): FreezeWindow | undefined {
  const open = rules.flatMap((rule) => windowAt(rule, now) ?? []).filter(({ fromMs, toMs }) => fromMs <= now && now < toMs);
  return open.sort((a, b) => b.toMs - a.toMs)[0];
}

/** The windows that are open now or begin within seven days, by their beginning; of a rule the first one. */
export function freezesAhead(rules: readonly FreezeRule[], now: number): FreezeWindow[] {
  const found = rules.flatMap((rule) => windowAt(rule, now) ?? []);
  return found.filter(({ fromMs }) => fromMs <= now + SHOWN_BEFORE_MS).sort((a, b) => a.fromMs - b.fromMs);
}

/** The same in sentences, for whoever plans a deploy. */
export function toldFreezes(rules: readonly FreezeRule[], now: number): string[] {
  return freezesAhead(rules, now).map(({ fromMs, toMs, reason }) => {
    const [from, to] = [fromMs, toMs].map((at) => new Date(at).toISOString());
    return fromMs <= now ? `a deploy is refused until ${to}: ${reason}` : `from ${from} to ${to} deploys are refused: ${reason}`;
  });
}

/** The window of a rule that is open now, else the next one. */
function windowAt(rule: FreezeRule, now: number): FreezeWindow | undefined {
  const { reason } = rule;
  if ("fromMs" in rule) return rule.toMs > now ? { fromMs: rule.fromMs, toMs: rule.toMs, reason } : undefined;
  const calendar = calendarOf(rule.rhythm);
  const last = calendar.by(now);
  const isOpen = last !== undefined && last + rule.forMs > now;
  const fromMs = isOpen ? last : calendar.after(now);
  return fromMs === undefined ? undefined : { fromMs, toMs: joinedEnd(calendar, fromMs, rule.forMs), reason };
}

/** When a window ends; one that begins before the one before has ended makes it longer. */
function joinedEnd(calendar: Calendar, from: number, ms: number): number {
  let last = from;
  for (let joined = 0; joined < MOST_JOINED; joined++) {
    const next = calendar.after(last);
    if (next === undefined || next > last + ms) break;
    last = next;
  }
  return last + ms;
}
