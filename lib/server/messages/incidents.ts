import { CERTIFICATE_DAYS, type MessageEvent, type Notify, type NotifyRule } from "../../bucket/notify/notify.ts";
import { DAY_IN_MS } from "../../codec/calendar/zone.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { plainLine } from "../../core/plain-text.ts";
import { shortNames } from "../../core/short-names.ts";
import type { Incident, Message, MessageState } from "./state.ts";

/** What was found at one place. */
export interface Sighting {
  event: Exclude<MessageEvent, "recovered">;
  /** The place, the same in each finding about it; places of different kinds have different names. */
  place: string;
  isBad: boolean;
  /** Bad findings of one group, found together, are one incident. */
  group: string;
  /** It is told once and has no end. */
  isMoment?: boolean;
  /** How the subject names the place, where not by its own name. */
  shown?: string;
  job?: string | null;
  reason?: string;
  run: string | null;
  /** When it was found, where that was not just now. RFC 3339. */
  at?: string | undefined;
  /** When it ends, of a certificate. */
  endsAt?: number;
}

/** What was found since the last look. */
export interface Sightings {
  /** One after the other. */
  found: readonly Sighting[];
  /** Of these events everything that is bad now is known: all other places are good. */
  complete: readonly { events: readonly MessageEvent[]; bad: ReadonlySet<string> }[];
  /** The places that a run has looked at and found bad, by event. */
  checks: readonly { run: string; event: MessageEvent; bad: ReadonlySet<string> }[];
}

/** Kept of the incidents that are over, and of the messages that wait for nothing. */
const MOST_OVER = 200;
const MOST_DONE = 500;
/** More open incidents, and more waiting messages, are not kept. */
const MOST_OPEN_INCIDENTS = 500;
const MOST_WAITING = 1_000;
const MOST_REASON = 1_000;
const MOST_SUBJECT = 200;

const OF_RUNS: readonly MessageEvent[] = ["run_failed", "gate_failed", "snapshot_failed"];

/** How a subject begins. */
const TITLES: Readonly<Record<MessageEvent, string>> = {
  run_failed: "Run failed",
  gate_failed: "Health gate failed",
  snapshot_failed: "Snapshot failed",
  allocation_unhealthy: "Unhealthy",
  worker_unreachable: "Worker unreachable",
  drift: "Drift",
  certificate_ends: "Certificate ends",
  schedule_missed: "Schedule missed",
  approval_wanted: "Approval wanted",
  break_glass_used: "Break-glass used",
  recovered: "Over",
};

/** Lets incidents begin and end as was found. Changes `state`. */
export function noteFindings(state: MessageState, { found, complete, checks }: Sightings, now: number): void {
  const at = new Date(now).toISOString();
  const open = new Map<string, Incident>();
  // What is over has no place left, but for what is told once: its place is of nothing else, and stays known.
  for (const one of state.incidents) for (const place of one.left) open.set(placeKey(one.event, place), one);
  // What was found together and has not begun yet, by place.
  const fresh = new Map<string, Sighting>();
  const beginAll = () => {
    for (const group of Map.groupBy(fresh.values(), (one) => `${one.event} ${one.group}`).values())
      begin(state, group, { open, at });
    fresh.clear();
  };
  for (const finding of found) {
    const key = placeKey(finding.event, finding.place);
    // What was bad and is good again was an incident.
    if (!finding.isBad && fresh.has(key)) beginAll();
    if (!finding.isBad) open.delete(key);
    else if (!open.has(key) && !fresh.has(key)) fresh.set(key, finding);
  }
  beginAll();
  const goingOn = (one: Incident) => one.left.filter((place) => open.get(placeKey(one.event, place)) === one);
  for (const { run, bad } of checks)
    for (const one of new Set(open.values()))
      if (one.run_id !== run && goingOn(one).some((place) => bad.has(place))) one.checks++;
  for (const { events, bad } of complete)
    for (const [key, one] of open) if (events.includes(one.event) && !bad.has(key.slice(key.indexOf(" ") + 1))) open.delete(key);
  for (const one of state.incidents.filter(({ over_at }) => over_at === null)) {
    one.left = goingOn(one);
    if (one.left.length === 0) one.over_at = at;
  }
}

/** The name of a place among all; the failures of runs have one way to their end. */
function placeKey(event: MessageEvent, place: string): string {
  return `${OF_RUNS.includes(event) ? "run" : event} ${place}`;
}

/** Adds the messages that are due, as notify.json says, and forgets what is old. Changes `state`. */
export function noteMessages(state: MessageState, { send, targets }: Notify, now: number): void {
  const names = Object.keys(targets);
  for (const one of state.incidents.filter(({ settled }) => !settled)) {
    // What has no end has all its places left.
    const isOver = one.over_at !== null && one.left.length === 0;
    const due = names.filter((name) => send.some((rule) => rule.to.includes(name) && isDue(rule, one, now)));
    const endTold = names.filter((name) => send.some((rule) => rule.to.includes(name) && rule.events.includes("recovered")));
    for (const name of new Set([...one.told, ...due])) {
      const isTold = one.told.includes(name);
      if (isOver && endTold.includes(name)) {
        // Nobody has heard of the beginning: the end tells both.
        remove(state.messages, (message) => isUnheard(message, one, name));
        add(state, { incident: one, target: name, event: "recovered" }, now);
      } else if (!isTold) add(state, { incident: one, target: name, event: one.event }, now);
      if (!isTold) one.told.push(name);
    }
    if (one.over_at !== null) one.settled = true;
  }
  forget(state);
}

function isDue({ events, after, days }: NotifyRule, { event, checks, ends_at }: Incident, now: number): boolean {
  if (!events.includes(event) && !(events.includes("run_failed") && OF_RUNS.includes(event))) return false;
  if (event === "allocation_unhealthy" || event === "worker_unreachable") return checks >= after;
  return event !== "certificate_ends" || Date.parse(ends_at ?? "") <= now + days * DAY_IN_MS;
}

/** How long before its end a certificate is an incident. */
export function certificateMs({ send }: Pick<Notify, "send">): number {
  const asked = send.filter(({ events }) => events.includes("certificate_ends")).map(({ days }) => days);
  return Math.max(CERTIFICATE_DAYS.usual, ...asked) * DAY_IN_MS;
}

function begin(state: MessageState, group: readonly Sighting[], { open, at }: { open: Map<string, Incident>; at: string }): void {
  const { event, run, isMoment = false } = group[0] as Sighting;
  const places = group.map(({ place }) => place);
  const job = jobOf(group);
  const isTogether = (one: Incident) => one.over_at === null && one.event === event && one.run_id === run && one.job === job;
  const together = run === null || isMoment ? undefined : state.incidents.find(isTogether);
  const incident = together ?? incidentOf(group, { job, at });
  if (together) {
    together.places.push(...places.filter((place) => !together.places.includes(place)));
    together.left.push(...places.filter((place) => !together.left.includes(place)));
  } else if (state.incidents.filter(({ over_at }) => over_at === null).length >= MOST_OPEN_INCIDENTS) return;
  else state.incidents.push(incident);
  for (const place of places) open.set(placeKey(event, place), incident);
}

function incidentOf(group: readonly Sighting[], { job, at }: { job: string | null; at: string }): Incident {
  const { event, run, isMoment, at: foundAt = at } = group[0] as Sighting;
  const places = group.map(({ place }) => place);
  const named = group.map(({ shown, place }) => shown ?? place);
  const reasons = [...new Set(group.map(({ reason = "" }) => reason).filter((reason) => reason !== ""))];
  const ends = group.flatMap(({ endsAt }) => endsAt ?? []);
  return {
    id: uuidV7(),
    event,
    subject: plainLine(`${TITLES[event]}: ${shortNames(named, ", ")}`, MOST_SUBJECT),
    reason: reasons.join("\n").slice(0, MOST_REASON).toWellFormed(),
    job,
    run_id: run,
    checks: 1,
    ends_at: ends.length > 0 ? new Date(Math.min(...ends)).toISOString() : null,
    opened_at: foundAt,
    over_at: isMoment ? foundAt : null,
    places,
    left: [...places],
    told: [],
    settled: false,
  };
}

function jobOf(group: readonly Sighting[]): string | null {
  const jobs = new Set(group.map(({ job = null }) => job));
  return jobs.size === 1 ? ([...jobs][0] ?? null) : null;
}

function add(
  { messages }: MessageState,
  { incident, target, event }: { incident: Incident; target: string; event: MessageEvent },
  now: number,
): void {
  const at = new Date(now).toISOString();
  const subject = event === "recovered" ? `${TITLES.recovered}: ${incident.subject}` : incident.subject;
  const open = { state: "waiting", attempts: 0, next_at: at, error: null, sent_at: null } as const;
  messages.push({ id: uuidV7(), at, event, subject, target, incident: incident.id, ...open });
}

function isUnheard({ incident, target, state, attempts }: Message, { id }: Incident, name: string): boolean {
  return incident === id && target === name && state === "waiting" && attempts === 0;
}

/** Keeps the state small. An incident stays as long as one of its messages. */
function forget(state: MessageState): void {
  const waiting = state.messages.filter((one) => one.state === "waiting");
  for (const one of waiting.slice(0, Math.max(0, waiting.length - MOST_WAITING)))
    Object.assign(one, { state: "failed", next_at: null, error: `more than ${MOST_WAITING} messages wait` });
  const done = state.messages.filter((one) => one.state !== "waiting");
  const old = new Set(done.slice(0, Math.max(0, done.length - MOST_DONE)));
  remove(state.messages, (one) => old.has(one));
  const needed = new Set(state.messages.map(({ incident }) => incident));
  const over = state.incidents.filter(({ over_at, settled, id }) => over_at !== null && settled && !needed.has(id));
  const gone = new Set(over.slice(0, Math.max(0, over.length - MOST_OVER)));
  remove(state.incidents, (one) => gone.has(one));
}

function remove<T>(items: T[], isGone: (item: T) => boolean): void {
  for (let index = items.length - 1; index >= 0; index--) if (isGone(items[index] as T)) items.splice(index, 1);
}
