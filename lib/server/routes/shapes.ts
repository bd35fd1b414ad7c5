import { ROLES } from "../../auth/role.ts";
import { wrongCursor } from "../../bucket/catalog/pages.ts";
import { SCHEDULED_KINDS } from "../../bucket/workspace/schedules.ts";
import { SEAL } from "../../codec/crypto/seal-key.ts";
import { isUuid } from "../../codec/uuid.ts";
import {
  anything,
  boolean,
  described,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  record,
  type Shape,
  string,
  typeName,
  withDefault,
  withExample,
} from "../../core/shape.ts";
import { HTTP_STATUS } from "../../http/message.ts";
import { LOG_CHUNK } from "../../run/activity.ts";
import { RUN_EVENTS } from "../../run/events.ts";
import { EVIDENCE } from "../../run/log/log-evidence.ts";
import { LOG_MATCHES } from "../../run/log/log-search.ts";
import { LOG_LINE, LOG_LINES, LOG_MAP } from "../../run/log/log-view.ts";
import { PROGRESS, TIME } from "../../run/progress.ts";
import { RUN_KINDS, RUN_STATUS } from "../../run/protocol.ts";
import { ACTOR, ID, RUN_FIELDS, RUN_KIND } from "../../run/record.ts";
import { SHOWN_PROPOSAL } from "../approval/shape.ts";
import { AUDIT_END, AUDIT_FILE, AUDIT_LINE } from "../audit/shapes.ts";
import { MESSAGE, SHOWN_INCIDENT, SHOWN_TARGET } from "../messages/state.ts";
import { HEALTH_CHANGE, HEALTH_RECORD } from "../watch/health-shapes.ts";
import { LAST_DUE, PAUSED } from "../watch/schedule-state.ts";
import { BUCKET_GLANCES, BUCKET_SUMMARY, JOB_MAP, MAP_CELL } from "./glance-shapes.ts";

const CURSOR = "`next_cursor` of the last answer";

/** The cursor of a list that is read by its key, which is in it. */
export const CURSOR_TEXT = described(string({ min: 1, max: 4_000 }), CURSOR);

/** The query of a list: how many items, and after which one. */
export const PAGE = {
  limit: withDefault(described(integer({ min: 1, max: 500 }), "How many items at most"), 50),
  cursor: optional(described(string({ min: 1, max: 200 }), CURSOR)),
};

/** The same for a list of paths: the cursor is a path. */
export const PATH_PAGE = { ...PAGE, cursor: optional(described(string({ min: 1, max: 1_100 }), CURSOR)) };

/** control-plane.md, Limits: a long-poll lasts at most 60 s. */
const LONGEST_POLL_S = 60;
/** How long a long-poll may wait. */
export const TIMEOUT = withDefault(
  described(integer(), `Seconds to wait for something new; taken as 0 to ${LONGEST_POLL_S}`),
  30,
);

/** {@link TIMEOUT} in milliseconds, within its bounds. */
export function pollMs(timeoutS: number): number {
  return Math.min(Math.max(timeoutS, 0), LONGEST_POLL_S) * 1000;
}

/** A page of a list that is whole in memory; its cursor is an offset, see {@link offsetOf}. */
export function pageOf<T>(list: readonly T[], offset: number, limit: number) {
  const end = offset + limit;
  return { items: list.slice(offset, end), next_cursor: end < list.length ? String(end) : null };
}

/** A page of a list, the newest first; its cursor is the id of the last item before. Throws `invalid_request`. */
export async function pageById<T extends { id: string }>(
  read: () => Promise<readonly T[]>,
  { cursor, limit }: { cursor: string | undefined; limit: number },
) {
  if (cursor !== undefined && !isUuid(cursor)) throw wrongCursor();
  const left = (await read()).filter(({ id }) => cursor === undefined || id < cursor);
  const items = left.slice(0, limit);
  return { items, next_cursor: left.length > limit ? items.at(-1)?.id : null };
}

/** The offset that a cursor stands for. Throws `invalid_request`. */
export function offsetOf(cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  if (!/^\d{1,12}$/.test(cursor)) throw wrongCursor();
  return Number(cursor);
}

const SHA256 = withExample(string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
const MODE = described(oneOf("0644", "0755"), "0755 where the owner may execute the file");
const LAST_RUN = object({ id: ID, kind: RUN_KIND, status: RUN_STATUS, created_at: TIME, finished_at: nullable(TIME) });

const SHOWN_RUN = {
  ...RUN_FIELDS,
  duration_ms: described(integer({ min: 0 }), "During the run: until now"),
  log_size_bytes: described(integer({ min: 0 }), "Of the Activity log"),
};

const CELL: Shape<string | number | boolean | null> = {
  schema: {},
  check(value, path, report) {
    if (typeof value === "object" && value !== null)
      report(path, `expected text, a number or a truth value, found ${typeName(value)}`);
    return value as string | number | boolean | null;
  },
};
const ROW = { ...record(CELL), schema: { type: "object" } };

const WORKER = object({
  host: string(),
  hostname: nullable(string()),
  connection: oneOf("ssh", "local"),
  root: described(string(), "The bucket's folder on the worker is `<root>/<bucket id>`"),
  ssh_user: nullable(string()),
  ssh_port: nullable(integer()),
  ssh_jump: nullable(string()),
  labels: list(string()),
  memory_mb: described(anything({ type: "number" }), "0 where the file has none"),
  cpu_mhz: described(anything({ type: "number" }), "0 where the file has none"),
  tags: anything({ type: "object", additionalProperties: { type: "string" } }),
  position: integer(),
});

const NEXT_CURSOR = described(nullable(string()), "null at the end of the list");

/** The named schemas of openapi.yaml, of which answers are made. */
const SCHEMAS = {
  Error: object({
    error: described(oneOf(...(Object.keys(HTTP_STATUS) as [string])), "Stable, for programs"),
    message: described(string(), "One sentence, for people"),
    details: optional(described(anything(), "A list of {path, message}, or an object that depends on `error`")),
    run_id: optional(described(ID, "The run that is in the way, or that has the key already")),
  }),
  AuditLine: AUDIT_LINE,
  AuditEnd: AUDIT_END,
  AuditFile: AUDIT_FILE,
  Bucket: object({
    id: ID,
    project: string(),
    name: string(),
    initialized: described(boolean(), "Its database exists, so that runs can be started"),
    schema_version: described(nullable(integer()), "null before the bucket is initialised"),
    approvals: described(integer({ min: 0, max: 2 }), "How many others must approve a deploy, rollback, hook or command"),
    failed_allocations: described(
      nullable(integer()),
      "Allocations, without removed ones, whose last action failed or found the worker unreachable; null where the database cannot be read or has another schema",
    ),
    created_at: nullable(TIME),
    active_run: described(nullable(ID), "The run that this server carries out in the bucket now"),
    last_run: described(nullable(LAST_RUN), "The newest run, active or not, of the server or the command line"),
  }),
  Run: object(SHOWN_RUN),
  RunDetail: object({ ...SHOWN_RUN, progress: nullable(PROGRESS) }),
  Proposal: SHOWN_PROPOSAL,
  RunStarted: object({ run_id: ID }),
  WaitingStart: object({
    position: described(integer({ min: 1 }), "1 is the next to start"),
    key: described(string(), "Its Idempotency-Key"),
    kind: oneOf(...RUN_KINDS),
    by: described(ACTOR, "Who asked for it"),
    since: TIME,
    connected: described(boolean(), "A client waits for this start. Without a client the start loses its place after 30 s"),
  }),
  Schedule: object({
    name: string(),
    kind: oneOf(...SCHEDULED_KINDS),
    parameters: described(anything({ type: "object" }) as Shape<Record<string, unknown>>, "Of the run"),
    every_seconds: described(nullable(integer({ min: 60 })), "null where it goes by cron"),
    cron: nullable(string()),
    timezone: described(nullable(string()), "The clock that cron goes by"),
    jitter_seconds: described(integer({ min: 0 }), "It starts up to so much later, always by the same time"),
    wait_seconds: described(integer({ min: 0 }), "How long it waits for a busy bucket"),
    catch_up: boolean(),
    next: described(nullable(TIME), "When it is due next; null while it is paused"),
    last: described(nullable(LAST_DUE), "What became of the last due time; null before the first"),
    paused: described(nullable(PAUSED), "Since when, and by whom"),
  }),
  Incident: SHOWN_INCIDENT,
  Message: MESSAGE,
  MessageTarget: SHOWN_TARGET,
  HealthChange: HEALTH_CHANGE,
  HealthRecord: HEALTH_RECORD,
  LogChunk: LOG_CHUNK,
  Evidence: EVIDENCE,
  LogLine: LOG_LINE,
  LogLines: LOG_LINES,
  LogMap: LOG_MAP,
  LogMatches: LOG_MATCHES,
  Events: RUN_EVENTS,
  Revision: object({
    id: ID,
    created_at: TIME,
    run_id: ID,
    size_bytes: integer({ min: 0 }),
    file_count: integer({ min: 0 }),
    sha256: described(SHA256, "Of the sorted list of its files"),
    build_status: oneOf("pending", "succeeded", "failed"),
    note: described(nullable(string()), "What the push said about itself"),
    commit: described(nullable(string()), "The Git commit that was pushed, with `-dirty` where files differed from it"),
    by: described(nullable(string()), "The name of the token that pushed it; null in earlier records"),
    current: described(boolean(), "It is the bucket's source now"),
    last_successful: described(boolean(), "The latest one whose build succeeded"),
  }),
  RevisionDiff: object({
    revision_id: ID,
    against: ID,
    added: described(list(string()), "Paths"),
    removed: described(list(string()), "Paths"),
    changed: list(
      object({
        path: string(),
        mode: described(nullable(object({ before: MODE, after: MODE })), "Set where the modes differ"),
        diff: described(nullable(string()), "Unified; empty where only the mode differs"),
        omitted: described(nullable(oneOf("binary", "too_large")), "Why there is no diff"),
      }),
    ),
  }),
  WorkerFacts: object({
    worker: string(),
    taken_at: TIME,
    facts: described(anything({ type: "object" }), "As in the result of the run that read them"),
  }),
  Snapshot: object({
    name: described(string(), "`<UTC time>-<short id>`"),
    created_at: TIME,
    size_bytes: integer({ min: 0 }),
    note: string(),
    schema_version: nullable(integer()),
    program_version: nullable(string()),
    source_revision: described(nullable(ID), "The revision that was the source then; null where none was"),
    seal: described(nullable(SEAL), "How it is opened: `for` is `passphrase` or `recipient`; null for one in clear"),
    signer: described(
      nullable(string()),
      "The fingerprint of the key that has signed it, of a sealed one as its head says; null for none",
    ),
    own: described(boolean(), "Signed with the key of this server"),
    error: described(nullable(string()), "Why it cannot be used; null where its manifest can be read"),
  }),
  BucketInfo: object({
    project: string(),
    name: string(),
    bucket_id: ID,
    built_at: described(nullable(TIME), "When the last build stored the catalog; null before the first"),
    update_seq: described(integer({ min: 0 }), "Rises with each wave of a deploy that had work"),
    workers: integer({ min: 0 }),
    jobs: integer({ min: 0 }),
    allocations: described(integer({ min: 0 }), "Those that are not removed"),
    schema_version: integer({ min: 0 }),
  }),
  BucketSummary: BUCKET_SUMMARY,
  BucketGlances: BUCKET_GLANCES,
  JobMap: JOB_MAP,
  MapCell: MAP_CELL,
  CatalogPage: object({
    items: list(described(ROW, "A row, keyed by the columns")),
    columns: described(list(string()), "In the order in which they are shown"),
    next_cursor: NEXT_CURSOR,
  }),
  SourceFile: object({
    path: string(),
    size_bytes: integer({ min: 0 }),
    mode: MODE,
    sha256: described(SHA256, "Of its bytes, in hex"),
  }),
  Template: object({
    name: described(string(), "Of the folder in templates/"),
    files: list(object({ path: string(), size_bytes: integer({ min: 0 }), mode: MODE })),
  }),
  Settings: object({
    path: string(),
    content: described(string(), "The text of the file; empty where there is none"),
    values: described(nullable(anything({ type: "object" })), "The values of the file; null where it has a mistake"),
    problem: described(nullable(string()), "The first thing that a build would refuse"),
  }),
  WorkerDefinition: WORKER,
  WorkerDefinitions: object({
    items: list(WORKER),
    next_cursor: NEXT_CURSOR,
    problems: described(
      list(
        object({
          code: described(string(), "Stable, for programs"),
          file: string(),
          path: described(string(), "The place in the file"),
          message: string(),
        }),
      ),
      "What a build would refuse",
    ),
  }),
  SshKey: object({
    present: boolean(),
    type: described(nullable(string()), "null without a key, and for one that ssh cannot use"),
    fingerprint: described(nullable(string()), "`SHA256:…`, as ssh-keygen shows it"),
    public_key: described(nullable(string()), "One line for authorized_keys on the workers"),
    updated_at: nullable(TIME),
  }),
  Session: object({
    expires_at: described(nullable(TIME), "null for a request by API token, which does not expire"),
    totp: described(object({ enabled: boolean(), verified: boolean() }), "Whether this token needs it, and has proven it"),
    totp_expires_at: described(nullable(TIME), "When the TOTP session ends; null where the request has none"),
    name: described(string(), "The name of the token"),
    role: oneOf(...ROLES),
    buckets: described(nullable(list(string())), "The ids of the buckets that the token is for; null: all"),
  }),
} satisfies Record<string, Shape<unknown>>;

/** What an answer with a named schema holds. */
export type Answer<N extends keyof typeof SCHEMAS> = Infer<(typeof SCHEMAS)[N]>;

/** The named schemas, for openapi.yaml. */
export const COMPONENTS: Readonly<Record<string, Shape<unknown>>> = SCHEMAS;

/** A reference to a named schema. */
export function component<N extends keyof typeof SCHEMAS>(name: N): Shape<Answer<N>> {
  return { ...(SCHEMAS[name] as Shape<Answer<N>>), schema: { $ref: `#/components/schemas/${name}` } };
}

/** A page of a list. */
export function page(name: keyof typeof SCHEMAS): Shape<unknown> {
  return object({ items: list(component(name)), next_cursor: NEXT_CURSOR });
}

/** A name that people give: one line of text. */
export const LABEL = string({ min: 1, max: 200, pattern: /^[^\u0000-\u001f\u007f]+$/, means: "one line of text" });
