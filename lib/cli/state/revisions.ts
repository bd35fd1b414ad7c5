import type { Revision } from "../../bucket/source/revisions.ts";
import { idNamed } from "../../codec/uuid.ts";
import { byteSize, counted } from "../../core/plain-text.ts";
import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import {
  type Columns,
  diffColours,
  factLines,
  hasColours,
  printAnswer,
  printJson,
  printList,
  toStdout,
} from "../base/terminal.ts";
import type { BucketAccess, RevisionDiff } from "./access.ts";

/** What a list shows of a revision. */
type Listed = Pick<Revision, "id" | "created_at" | "current" | "last_successful"> & {
  build_status: string;
  note?: string | null | undefined;
  commit?: string | null | undefined;
};

/** The columns of a list of revisions. */
export const REVISION_COLUMNS: Columns<Listed> = {
  revision: ({ id }) => id,
  pushed: ({ created_at }) => created_at,
  build: ({ build_status }) => build_status,
  commit: ({ commit }) => commit?.replace(/^(.{8})[^-]*/, "$1") ?? null,
  is: (one) => marksOf(one) || null,
  note: ({ note }) => note ?? null,
};

function marksOf({ current, last_successful }: Pick<Revision, "current" | "last_successful">): string {
  return [...(current ? ["current"] : []), ...(last_successful ? ["last successful"] : [])].join(", ");
}

/** `ops revisions list`. */
export async function showRevisions(bucket: BucketAccess, input: Parsed): Promise<number> {
  const none = "there are no revisions: a push to a server makes them";
  return printList(input, await bucket.revisions(), none, REVISION_COLUMNS);
}

/** `ops revisions show <revision>`. */
export async function showRevision(bucket: BucketAccess, input: Parsed): Promise<number> {
  const revisions = await bucket.revisions();
  const ids = revisions.map((one) => one.id);
  const id = idNamed(input.operands[0] ?? "", ids, "revision");
  const revision = revisions[ids.indexOf(id)] as Revision;
  return printAnswer(
    input,
    revision,
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
