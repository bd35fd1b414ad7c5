import { hash } from "node:crypto";
import { lchown, open, stat } from "node:fs/promises";
import path from "node:path";
import { Failure, messageOf, placed } from "../core/errors.ts";
import { flushFolder, makePrivateFolder, PRIVATE_FILE } from "../core/files.ts";
import { faultPoint } from "../core/self.ts";
import { type SigningKey, serverSigningKey } from "../core/signing-key.ts";
import {
  type AuditPlace,
  type AuditSpot,
  type AuditTail,
  auditFiles,
  auditPlace,
  auditTail,
  CHAIN_FILE,
  sizeOf,
} from "./files.ts";
import { type AuditEntry, type AuditHead, auditLine, isSignedLine, NO_LINE, parseAuditLine } from "./line.ts";

/** Does a work while no other process does one on the same file; false where others kept it for `limitMs`. */
type TakeTurns = (file: string, limitMs: number, work: () => Promise<void>) => Promise<boolean>;

/** What an {@link AuditLog} needs. */
interface AuditLogOptions {
  /** The root of the server. */
  root: string;
  takeTurns: TakeTurns;
  /** Gets a sentence when lines cannot be written, and when they can again. */
  tell: (sentence: string) => void;
  now?: () => number;
}

/** How long a write waits for other processes. */
const TURN_MS = 10_000;
/** Between two tries to write what waits for room on the disk. */
const AGAIN_MS = 5_000;
/** How many entries wait in memory for that. */
const MOST_LATE = 1_000;

/** An entry that somebody waits for. */
interface AwaitedEntry {
  entry: AuditEntry;
  done: (head: AuditHead) => void;
  failed: (error: unknown) => void;
}

interface ChainEnd extends AuditSpot {
  head: AuditHead;
  torn: AuditTail["torn"];
}

/**
 * The audit of a server, for writing. A line is confirmed once it is on the disk. Entries that come while others are
 * written share the next write and its flush, in their order. Several processes may write one chain: each takes a turn for
 * a write and goes on behind what it finds. A write that was cut off leaves at most lines that nobody was told of.
 */
export class AuditLog {
  /** Called after each write, once it is on the disk. */
  onWritten: () => void = () => {};
  readonly #root: string;
  readonly #place: AuditPlace;
  readonly #takeTurns: TakeTurns;
  readonly #tell: (sentence: string) => void;
  readonly #now: () => number;
  #key: SigningKey | undefined;
  #end: ChainEnd | undefined;
  #wanted: AwaitedEntry[] = [];
  #late: AuditEntry[] = [];
  /** How many entries there was no room for. */
  #lost = 0;
  #trouble: string | undefined;
  #writing: Promise<void> | undefined;
  #again: NodeJS.Timeout | undefined;
  #closed = false;

  constructor({ root, takeTurns, tell, now = Date.now }: AuditLogOptions) {
    this.#root = root;
    this.#place = auditPlace(root);
    this.#takeTurns = takeTurns;
    this.#tell = tell;
    this.#now = now;
  }

  /** Where the files are. */
  get folder(): string {
    return this.#place.folder;
  }

  /** Behind the lines that this process has written last; undefined before its first ones, and after a failure. */
  get written(): AuditSpot | undefined {
    return this.#end;
  }

  /** Why nothing can be written; undefined where the last write went well. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Writes a line. Throws `audit_unavailable` where it cannot be written and flushed: then it is not there. */
  append(entry: AuditEntry): Promise<AuditHead> {
    const { promise, resolve: done, reject: failed } = Promise.withResolvers<AuditHead>();
    this.#wanted.push({ entry, done, failed });
    this.#write();
    return promise;
  }

  /** Writes a line as soon as it can be written. At most 1,000 wait in memory; of more only the number is told. */
  later(entry: AuditEntry): void {
    if (this.#late.length >= MOST_LATE) this.#lost++;
    else this.#late.push(this.#trouble === undefined ? entry : { ...entry, happened: this.#time() });
    this.#write();
  }

  /** The key of the server, which is made before the first line. Throws `audit_unavailable`. */
  async key(): Promise<SigningKey> {
    try {
      this.#key ??= await serverSigningKey(this.#root);
      return this.#key;
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** The last line, as the files say now. Throws `audit_unavailable`. */
  async head(): Promise<AuditHead> {
    return (await this.end()).head;
  }

  /** Where the chain ends now, as the files say. Throws `audit_unavailable`. */
  async end(): Promise<AuditSpot & { head: AuditHead }> {
    try {
      // What is just being written is not confirmed yet.
      if (this.#writing && this.#end) return this.#end;
      return await this.#findEnd();
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** Waits until everything is written that can be. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#again);
    while (this.#writing) await this.#writing;
  }

  #time(): string {
    return new Date(this.#now()).toISOString();
  }

  #write(): void {
    this.#writing ??= this.#writeLoop();
  }

  async #writeLoop(): Promise<void> {
    do {
      const [late, wanted] = [this.#late.splice(0), this.#wanted.splice(0)];
      const lost = this.#lost;
      try {
        const gap: AuditEntry[] =
          lost === 0 ? [] : [{ what: "outcome", outcome: "failed", error: "audit_unavailable", count: lost }];
        const entries = [...late, ...gap, ...wanted.map(({ entry }) => entry)];
        const heads = entries.length === 0 ? [] : await this.#inTurn(entries);
        this.#lost -= lost;
        const first = late.length + gap.length;
        for (const [index, { done }] of wanted.entries()) done(heads[first + index] as AuditHead);
        this.#wentWell();
      } catch (error) {
        this.#failed(error, late);
        for (const { failed } of wanted) failed(unavailable(error));
        // What waits is tried again later.
        if (this.#wanted.length === 0) break;
      }
    } while (this.#wanted.length > 0 || this.#late.length > 0);
    // At once: who is told of a line may write the next.
    this.#writing = undefined;
  }

  #wentWell(): void {
    clearTimeout(this.#again);
    this.#again = undefined;
    if (this.#trouble !== undefined) this.#tell("the audit can be written again");
    this.#trouble = undefined;
    this.onWritten();
  }

  #failed(error: unknown, late: readonly AuditEntry[]): void {
    const happened = this.#time();
    this.#late.unshift(...late.map((entry) => ({ ...entry, happened: entry.happened ?? happened })));
    const why = messageOf(error);
    if (this.#trouble !== why) this.#tell(`the audit cannot be written, so that nothing can be changed: ${why}`);
    this.#trouble = why;
    if (this.#closed || this.#late.length === 0) return;
    this.#again ??= setTimeout(() => {
      this.#again = undefined;
      this.#write();
    }, AGAIN_MS).unref();
  }

  async #inTurn(entries: readonly AuditEntry[]): Promise<AuditHead[]> {
    const { folder, lock } = this.#place;
    let heads: AuditHead[] = [];
    await makePrivateFolder(folder);
    const key = await this.key();
    const hadTurn = await this.#takeTurns(lock, TURN_MS, async () => {
      heads = await this.#continue(entries, await this.#findEnd(), key);
      await giveToOwner(this.#place, this.#end?.file ?? "");
    });
    if (!hadTurn) throw new Failure("failed", `other processes have kept ${lock} for ${TURN_MS / 1000} s`);
    return heads;
  }

  /** Writes lines behind the end of the chain. Only a file with a line that was cut off is gone on with in a later month. */
  async #continue(entries: readonly AuditEntry[], end: ChainEnd, key: SigningKey): Promise<AuditHead[]> {
    const at = this.#time();
    const month = `${at.slice(0, 7)}.jsonl`;
    const isNew = end.torn.length === 0 && month > end.file;
    const torn = end.torn.length > 0 ? { bytes: end.torn.length, sha256: hash("sha256", end.torn, "hex") } : undefined;
    const texts: string[] = [];
    const heads: AuditHead[] = [];
    for (const entry of entries) {
      const told = texts.length === 0 && torn ? { ...entry, torn } : entry;
      const { text, head } = auditLine(told, heads.at(-1) ?? end.head, at, key);
      texts.push(`${text}\n`);
      heads.push(head);
    }
    const spot = isNew ? { file: month, size: 0 } : end;
    const bytes = Buffer.from(texts.join(""));
    await this.#store(path.join(this.#place.folder, spot.file), spot.size, bytes);
    this.#end = { file: spot.file, size: spot.size + bytes.length, head: heads.at(-1) as AuditHead, torn: Buffer.alloc(0) };
    return heads;
  }

  /** Puts bytes into a file behind its whole lines, in place of what stands there, or leaves it as it was. */
  async #store(file: string, size: number, bytes: Buffer): Promise<void> {
    const isNew = (await sizeOf(file)) === undefined;
    await using handle = await open(file, CHAIN_FILE, PRIVATE_FILE);
    const found = await handle.stat();
    if (!found.isFile()) throw new Failure("failed", `${file} is not a regular file`);
    faultPoint("audit: opened");
    try {
      for (let at = 0; at < bytes.length; ) at += (await handle.write(bytes, at, bytes.length - at, size + at)).bytesWritten;
      faultPoint("audit: written");
      if (found.size > size + bytes.length) await handle.truncate(size + bytes.length);
      await handle.sync();
      if (isNew) await flushFolder(this.#place.folder);
    } catch (error) {
      // Nobody is told of these lines. Where they cannot be taken back, the next write finds them.
      this.#end = undefined;
      await handle.truncate(size).catch(() => {});
      throw placed(error, file);
    }
    faultPoint("audit: flushed");
  }

  /** Not kept: outside of a turn it may be that of a write by another process, which can still be taken back. */
  async #findEnd(): Promise<ChainEnd> {
    const { folder } = this.#place;
    const files = (await auditFiles(folder)).reverse();
    const known = this.#end;
    if (known && known.file === files[0] && known.size === (await sizeOf(path.join(folder, known.file)))) return known;
    const key = await this.key();
    let newest: ChainEnd | undefined;
    for (const file of files) {
      const { size, last, torn } = await auditTail(path.join(folder, file));
      newest ??= { file, size, head: NO_LINE, torn };
      if (last === undefined) continue;
      const line = isSignedLine(last, key.publicKey) ? parseAuditLine(last) : undefined;
      const changed = `the last line of ${path.join(folder, file)} was changed, or another key has signed it: run \`ops audit verify\`, and move the folder away to begin a new audit`;
      if (!line) throw new Failure("failed", changed);
      newest.head = { n: line.n, at: line.at, hash: line.hash };
      break;
    }
    return newest ?? { file: "", size: 0, head: NO_LINE, torn: Buffer.alloc(0) };
  }
}

function unavailable(error: unknown): Failure {
  if (error instanceof Failure && error.code === "audit_unavailable") return error;
  const message = `the audit cannot be written, so nothing is changed: ${messageOf(error)}`;
  return new Failure("audit_unavailable", message, { cause: error });
}

/** What root makes belongs to whom the root of the server belongs to: the server must be able to go on with it. */
async function giveToOwner({ folder, key, lock }: AuditPlace, file: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(path.dirname(folder));
  if (uid !== 0) await Promise.all([folder, key, lock, path.join(folder, file)].map((made) => lchown(made, uid, gid)));
}
