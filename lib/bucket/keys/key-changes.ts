import { hash, X509Certificate } from "node:crypto";
import { countOf, firstOf } from "../../core/plain-text.ts";
import { readRotation } from "../base/authority-change.ts";
import { loadAuthority, readPair } from "../base/certificates.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { Problems } from "../base/problems.ts";
import { rekeyingSince } from "../kv/kv-rekey.ts";
import { readOpsConf } from "../workspace/settings.ts";
import { sshKeyChange, sshKeyFile } from "../workspace/ssh-key.ts";

/** The kinds of runs that change a key of a bucket. */
export const KEY_CHANGES = ["kv_rekey", "ca_rotate", "ssh_key_rotate"] as const;

/** A change of a key that has begun and has not ended. */
export interface KeyChange {
  kind: (typeof KEY_CHANGES)[number];
  /** Since when the change is as far as it is. RFC 3339. */
  since: string;
  /** What has not been done yet. */
  left: string;
  /** The command that goes on with the change. */
  next: string;
}

/** What the files of a bucket tell of changes of its keys. */
type BegunChanges = Awaited<ReturnType<typeof begunKeyChanges>>;

/** Reads from the files in `secrets/` how far changes of keys are. */
export async function begunKeyChanges(layout: Layout) {
  const known = [await rekeying(layout), await rotatingSshKey(layout)].filter((one) => one !== undefined);
  const rotation = await readRotation(layout);
  const authority = rotation && { rotation, pem: (await readPair(layout)).certificate ?? "" };
  return {
    /** The changes that are known without the database. */
    known,
    authority,
  };
}

/** The changes of keys that have not ended, with what the database tells of them. */
export function keyChanges(db: Database, { known, authority }: BegunChanges): KeyChange[] {
  return authority ? [...known, rotatingAuthority(db, authority)] : known;
}

/** While a rotation of the CA goes on: of which CA a certificate is, in PEM. Undefined without a rotation. */
export async function authoritiesOf(layout: Layout): Promise<((certificate: string) => "old" | "new") | undefined> {
  const rotation = await readRotation(layout);
  if (!rotation) return undefined;
  const next = new X509Certificate(rotation.next?.certificate ?? (await loadAuthority(layout)).pem);
  return (certificate) => {
    const one = new X509Certificate(certificate);
    const isNew = one.fingerprint256 === next.fingerprint256 || (one.checkIssued(next) && one.verify(next.publicKey));
    return isNew ? "new" : "old";
  };
}

async function rekeying(layout: Layout): Promise<KeyChange | undefined> {
  const change = await rekeyingSince(layout);
  if (!change) return undefined;
  const left = change.isNext ? "the new kv.key is not in use yet" : "not everything is sealed anew: the kv.key before opens too";
  return { kind: "kv_rekey", since: change.since.toISOString(), left, next: "ops kv rekey" };
}

async function rotatingSshKey(layout: Layout): Promise<KeyChange | undefined> {
  const change = await sshKeyChange(sshKeyFile(layout, await readOpsConf(layout, new Problems())));
  if (!change) return undefined;
  const machines = change.left.length === 0 ? "a machine" : firstOf(change.left, MOST_IN_A_SENTENCE);
  const left = change.isNext
    ? "the new ssh key is not in use yet: not every machine was seen to let it in"
    : `${machines} may know only the ssh key before, which is offered too`;
  return { kind: "ssh_key_rotate", since: change.since.toISOString(), left, next: "ops ssh-key rotate" };
}

function rotatingAuthority(db: Database, { rotation, pem }: NonNullable<BegunChanges["authority"]>): KeyChange {
  const { phase, since } = rotation;
  const waits = whatWaits(authorityUse(db, pem));
  const step = phase === "trust" ? "the next CA does not sign yet" : "the CA before is trusted too";
  return {
    kind: "ca_rotate",
    since,
    left: waits === undefined ? step : `${step}: ${waits}`,
    next: waits === undefined ? "ops ca rotate" : "ops deploy --build",
  };
}

/** Which running allocations have a text as their `certs/ca.crt`. */
export type AuthorityUse = ReturnType<typeof authorityUse>;

/** How many allocations or machines a sentence names. */
export const MOST_IN_A_SENTENCE = 10;
const BUILT = "SELECT value FROM key_value WHERE namespace = 'ops/worker' AND key = 'certs/ca.crt' ORDER BY version DESC LIMIT 1";
// A digest is `<mode>:<SHA-256>`.
const ALLOCATIONS = `SELECT a.job || '@' || a.worker_ip AS place,
    h.unfinished OR COALESCE(json_extract(NULLIF(h.previous_files, ''), '$."certs/ca.crt"'), '') NOT LIKE '%:' || ? AS waits
  FROM allocations a JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id
  WHERE a.runs AND NOT a.removed ORDER BY a.job, a.position, a.worker_ip`;

/** How far the text of ca.crt has come: built, and deployed to which allocations. */
export function authorityUse(db: Database, text: string) {
  const rows = db.all<{ place: string; waits: number }>(ALLOCATIONS, hash("sha256", text));
  return {
    /** The last build knows the text, and tells it to jobs. */
    isBuilt: db.get<{ value: string }>(BUILT)?.value === text,
    /** How many allocations run, the removed ones left out: those are only to be stopped. */
    running: rows.length,
    /** `<job>@<worker>` of those that have another text, or whose files are not whole. */
    waiting: rows.filter(({ waits }) => waits === 1).map(({ place }) => place),
  };
}

/** What is missing until the next step of a rotation of the CA can be taken; undefined where nothing is. */
export function whatWaits({ isBuilt, waiting, running }: AuthorityUse): string | undefined {
  if (!isBuilt) return "no build knows the present ca.crt";
  if (waiting.length === 0) return undefined;
  return `${countOf(waiting.length, running, "running allocation")} not deployed with the present ca.crt: ${firstOf(waiting, MOST_IN_A_SENTENCE)}`;
}
