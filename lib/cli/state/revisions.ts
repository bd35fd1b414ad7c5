import type { Revision } from "../../bucket/source/revisions.ts";
import { idNamed } from "../../codec/uuid.ts";
import { byteSize, counted } from "../../core/plain-text.ts";
import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { diffColours, factLines, hasColours, printJson, shownTime, textTable, toStdout } from "../base/terminal.ts";
import type { BucketAccess, RevisionDiff } from "./access.ts";

/** What a list shows of a revision. */
type Listed = Pick<Revision, "id" | "created_at" | "current" | "last_successful"> & {
  build_status: string;
  note?: string | null | undefined;
  commit?: string | null | undefined;
};

/** Revisions as a table. */
export function revisionTable(revisions: readonly Listed[]): string {
  const rows = revisions.map(({ id, created_at, build_status, note, commit, ...marks }) => [
    id,
    shownTime(created_at),
    build_status,
    commit?.replace(/^(.{8})[^-]*/, "$1") ?? null,
    marksOf(marks) || null,
    note ?? null,
  ]);
  return textTable(["revision", "pushed", "build", "commit", "is", "note"], rows, process.stdout.columns);
}

function marksOf({ current, last_successful }: Pick<Revision, "current" | "last_successful">): string {
  return [...(current ? ["current"] : []), ...(last_successful ? ["last successful"] : [])].join(", ");
}

/** `ops revisions list`. */
export async function showRevisions(bucket: BucketAccess, input: Parsed): Promise<number> {
  const revisions = await bucket.revisions();
  if (wantsJson(input)) printJson(revisions);
  else if (revisions.length === 0) toStdout("there are no revisions: a push to a server makes them\n");
  else toStdout(revisionTable(revisions));
  return EXIT.done;
}

/** `ops revisions show <revision>`. */
export async function showRevision(bucket: BucketAccess, input: Parsed): Promise<number> {
  const revisions = await bucket.revisions();
  const ids = revisions.map((one) => one.id);
  const id = idNamed(input.operands[0] ?? "", ids, "revision");
  const revision = revisions[ids.indexOf(id)] as Revision;
  if (wantsJson(input)) printJson(revision);
  else
    toStdout(
      factLines([
        ["revision", id],
        ["pushed", revision.created_at],
        ["by", revision.by],
        ["note", revision.note],
        ["commit", revision.commit],
        ["build", revision.build_status],
        ["is", marksOf(revision)],
        ["run", revision.run_id],
        ["holds", `${counted(revision.file_count, "file")}, ${byteSize(revision.size_bytes)}`],
        ["sha256", revision.sha256],
      ]),
    );
  return EXIT.done;
}

/** `ops revisions diff <revision> [against]`: what the step from the other revision to this one changes. */
export async function showDifferences(bucket: BucketAccess, input: Parsed): Promise<number> {
  const [given = "", other] = input.operands;
  const against = other === undefined ? undefined : await bucket.revisionNamed(other);
  const diff = await bucket.diff(await bucket.revisionNamed(given), against);
  if (wantsJson(input)) printJson(diff);
  else toStdout(diffText(diff), hasColours() ? diffColours : undefined);
  return EXIT.done;
}

const OMITTED = { binary: "is no text", too_large: "is too large to be shown" };

function diffText({ revision_id: id, against, added, removed, changed }: RevisionDiff): string {
  if (added.length + removed.length + changed.length === 0) return `${id} has the same files as ${against}\n`;
  const whole = [...removed.map((path) => `removed: ${path}\n`), ...added.map((path) => `added: ${path}\n`)];
  const parts = changed.map(({ path, mode, diff, omitted }) => {
    const how = [...(mode ? [`mode ${mode.before} to ${mode.after}`] : []), ...(omitted ? [OMITTED[omitted]] : [])];
    return `changed: ${[path, ...how].join(", ")}\n${diff ?? ""}`;
  });
  return [...whole, ...parts].join("");
}
