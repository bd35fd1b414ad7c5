import { hash } from "node:crypto";
import path from "node:path";
import { Failure } from "../../core/errors.ts";
import { namesIn, readBounded, remove, writeAtomic } from "../../core/files.ts";
import {
  check,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  quote,
  type Shape,
  string,
  withDefault,
} from "../../core/shape.ts";
import type { Layout } from "../base/layout.ts";

/** One accepted push: `.ops/revisions/<id>/` holds its files, which never change. */
export interface Revision extends StoredRevision {
  /** ops.conf, workspace/ and templates/ are those of this revision now. */
  current: boolean;
  /** The latest one whose build succeeded. */
  last_successful: boolean;
}

/** The shape of {@link StoredRevision}, in revisions.json and in the journal. */
export const STORED_REVISION = object({
  /** A UUID whose order is the order of the pushes. */
  id: string({ pattern: /^[0-9a-f-]{36}$/, means: "a revision id" }),
  created_at: string(),
  run_id: string(),
  size_bytes: integer({ min: 0 }),
  file_count: integer({ min: 0 }),
  /** Of the lines `<sha256> <mode> <path>` of all files, sorted by path. */
  sha256: string(),
  build_status: oneOf("pending", "succeeded", "failed"),
  /** What the push said about itself; null where nothing was said. */
  note: withDefault(nullable(string()), null),
  /** The Git commit of the folder that was pushed, with `-dirty` where files differed from it. */
  commit: withDefault(nullable(string()), null),
  /** The name of the token that pushed it; null in earlier records. */
  by: withDefault(nullable(string()), null),
});
/** The record of a revision. The two marks of {@link Revision} are stored apart: at most one revision has each of them. */
export type StoredRevision = Infer<typeof STORED_REVISION>;

/** The record of a revision without the two marks. */
export function withoutMarks({ current: _, last_successful: __, ...stored }: Revision): StoredRevision {
  return stored;
}

const STATE = object({
  current: optional(string()),
  last_successful: optional(string()),
  /** Newest first. */
  revisions: list(STORED_REVISION),
});

type State = Infer<typeof STATE>;

const NEWEST_KEPT = 20;
/** In the folder of a revision, beside its source: the lines of which `sha256` is the sum. */
export const LIST_FILE = "files.sha256";
/** Enough for as many files as a source may have, with the longest paths. */
const LIST_BYTES = 32 * 1024 * 1024;
const FILE_BYTES = 1024 * 1024;

/** All revisions that are kept, newest first; none where nothing was ever pushed. */
export async function listRevisions(layout: Layout): Promise<Revision[]> {
  const { revisions, current, last_successful } = await readState(layout);
  return revisions.map((revision) => {
    return { ...revision, current: revision.id === current, last_successful: revision.id === last_successful };
  });
}

/** The id of the revision that is the source; null where nothing was ever pushed, or the list cannot be read. */
export async function currentRevision(layout: Layout): Promise<string | null> {
  try {
    return (await readState(layout)).current ?? null;
  } catch {
    return null;
  }
}

/**
 * What the current revision has: the lines of its list, its folder, and the moment (in milliseconds) at which all of it
 * was there. Undefined where there is none, or where its list is not the one that the revision was made with.
 */
export async function currentFiles(layout: Layout) {
  try {
    const { current, revisions } = await readState(layout);
    const revision = revisions.find(({ id }) => id === current);
    const folder = path.join(layout.revisions, `${current}`);
    const list = await readBounded(path.join(folder, LIST_FILE), LIST_BYTES);
    if (!revision || !list || hash("sha256", list) !== revision.sha256) return undefined;
    return { folder, until: Date.parse(revision.created_at), lines: new Set(list.toString().split("\n")) };
  } catch {
    return undefined;
  }
}

/** One of {@link listRevisions}, its id in whatever case. Throws `revision_not_found`. */
export async function findRevision(layout: Layout, id: string): Promise<Revision> {
  const found = (await listRevisions(layout)).find((revision) => revision.id === id.toLowerCase());
  if (!found) throw new Failure("revision_not_found", `revision ${quote(id)} does not exist`);
  return found;
}

/** Notes how the build of the current revision ended; a success makes it the last successful one. */
export async function markBuilt(layout: Layout, status: "succeeded" | "failed"): Promise<void> {
  const state = await readState(layout);
  const current = state.revisions.find((revision) => revision.id === state.current);
  if (!current) return;
  current.build_status = status;
  if (status === "succeeded") state.last_successful = current.id;
  await writeState(layout, state);
}

/**
 * Makes a revision the current one, adding it if it is new; without a revision, none is current. Forgets all revisions
 * but the newest 20, the current and the last successful one. A second call changes nothing.
 */
export async function recordCurrent(layout: Layout, revision: StoredRevision | undefined): Promise<void> {
  const { revisions, last_successful } = await readState(layout);
  const current = revision?.id;
  const others = revisions.filter(({ id }) => id !== current);
  const all = [...(revision ? [revision] : []), ...others].sort((a, b) => (a.id < b.id ? 1 : -1));
  const kept = all.filter(({ id }, index) => index < NEWEST_KEPT || id === current || id === last_successful);
  await writeState(layout, { current, last_successful, revisions: kept });
}

/** Removes the files of revisions that revisions.json does not list: forgotten ones and pushes that came to nothing. */
export async function removeUnlisted(layout: Layout): Promise<void> {
  const names = await namesIn(layout.revisions);
  if (names.length === 0) return;
  const { revisions } = await readState(layout);
  const listed = new Set(revisions.map((revision) => revision.id));
  for (const name of names) if (!listed.has(name)) await remove(path.join(layout.revisions, name));
}

async function readState(layout: Layout): Promise<State> {
  const bytes = await readBounded(layout.revisionsFile, FILE_BYTES);
  if (!bytes) return { current: undefined, last_successful: undefined, revisions: [] };
  return parseRecord(STATE, bytes, layout.revisionsFile);
}

/** Reads a JSON file of `.ops/`, which only this program writes. Throws `failed` naming the file. */
export function parseRecord<T>(shape: Shape<T>, bytes: Buffer, file: string): T {
  const cannot = `Cannot read ${file}:`;
  try {
    const checked = check(shape, JSON.parse(bytes.toString()));
    if (checked.ok) return checked.value;
    const [problem] = checked.problems;
    throw new Failure("failed", `${cannot} ${problem?.path} ${problem?.message}`);
  } catch (cause) {
    throw cause instanceof Failure ? cause : new Failure("failed", `${cannot} it is not JSON`, { cause });
  }
}

async function writeState(layout: Layout, state: State): Promise<void> {
  await writeAtomic(layout.revisionsFile, `${JSON.stringify(state, undefined, 2)}\n`);
}
