import path from "node:path";
import { type LabelFile, layoutOf } from "../../bucket/base/layout.ts";
import { NO_NOTIFY, type Notify } from "../../bucket/notify/notify.ts";
import { bucketIds, findBucket, type RootBucket } from "../../bucket/source/root.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { exists } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { quote } from "../../core/shape.ts";
import { isQuiet } from "../../plan/calendar.ts";
import type { Lines } from "../line.ts";
import { Courier } from "./courier.ts";
import { findingsOf } from "./findings.ts";
import { noteFindings, noteMessages } from "./incidents.ts";
import { BucketSources } from "./sources.ts";
import { type Message, type MessageState, readMessageState, writeMessageState } from "./state.ts";
import { fieldsOf, testFields } from "./wording.ts";

/** How often buckets are looked at. */
const ROUND_MS = 2_000;
const SECOND_MS = 1_000;
/** The pauses after the attempts, in seconds: a day in all. After the last one the message has failed. */
const PAUSES = [10, 30, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 36_000];
const LONGEST_RETRY_MS = 36_000 * SECOND_MS;
/** After an attempt whose outcome could not be written: it would be made again at once. */
const UNWRITTEN_MS = 60 * SECOND_MS;
const MOST_ERROR = 500;

/** A bucket, as the messenger knows it. */
interface Book {
  bucket: RootBucket;
  state: MessageState;
  /** The state as it is on the disk. */
  text: string;
  /** The bucket was looked at before. */
  isKnown: boolean;
  /** Of the sources, at the last look. */
  version: string;
  /** Undefined until notify.json was read. */
  notify: Notify | undefined;
  /** The targets that get a message now. */
  sending: Map<string, Promise<void>>;
}

/** What a messenger works with. */
interface MessengerMeans {
  root: string;
  labels: LabelFile;
  lines: Pick<Lines, "alone">;
  sources: Pick<BucketSources, "version" | "look">;
  courier: Pick<Courier, "send">;
  log: (message: string) => void;
  now: () => number;
}

/** The messenger of a server. */
export function messengerOf(
  own: Omit<MessengerMeans, "sources" | "courier"> &
    ConstructorParameters<typeof BucketSources>[0] &
    ConstructorParameters<typeof Courier>[0],
): Messenger {
  return new Messenger({ ...own, sources: new BucketSources(own), courier: new Courier(own) });
}

/**
 * Finds out what is wrong in the buckets and tells it, each incident once and its end once. What it knows of a bucket is one
 * file, replaced as a whole: a look, or the outcome of an attempt, is on the disk or has not happened. So a server that
 * is killed at any moment loses no message, and sends one twice only under the same id.
 */
export class Messenger {
  readonly #own: MessengerMeans;
  readonly #books = new Map<string, Book>();
  /** What was told of each bucket that cannot be looked at. */
  readonly #told = new Map<string, string>();
  readonly #ending = new AbortController();

  constructor(own: MessengerMeans) {
    this.#own = own;
  }

  /** Looks at all buckets again and again, and sends what is due, until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#ending.abort());
    while (!signal.aborted) {
      await this.round();
      await sleep(ROUND_MS, signal).catch(() => {});
    }
    await this.idle();
  }

  /** Looks at all buckets once, and begins to send what is due. */
  async round(): Promise<void> {
    const { root, labels } = this.#own;
    const ids = await bucketIds(root, labels).catch((error: unknown) => this.#tell("", error));
    if (!ids) return;
    this.#told.delete("");
    for (const id of this.#books.keys()) if (!ids.includes(id)) this.#books.delete(id);
    for (const id of ids) {
      try {
        const book = await this.#open(id);
        if (!book) continue;
        await this.#look(book);
        this.#deliver(book);
        this.#told.delete(id);
      } catch (error) {
        this.#tell(id, error);
      }
    }
  }

  /** Waits until no message is on its way. */
  async idle(): Promise<void> {
    for (const { sending } of this.#books.values()) await Promise.all(sending.values());
  }

  /** What is kept of a bucket, and what notify.json says. */
  async kept(bucket: RootBucket): Promise<{ state: MessageState; notify: Notify }> {
    const book = await this.#open(bucket.id);
    if (book) await this.#look(book);
    return { state: book?.state ?? EMPTY, notify: book?.notify ?? NO_NOTIFY };
  }

  /** Sends a test to a target, once. Answers its id, and why it was not taken. Throws `not_found`. */
  async test(bucket: RootBucket, target: string, signal: AbortSignal): Promise<{ id: string; error: string | null }> {
    const { notify } = await this.kept(bucket);
    if (!Object.hasOwn(notify.targets, target)) throw new Failure("not_found", `there is no target ${quote(target)}`);
    const id = uuidV7();
    const fields = testFields(id, bucket, this.#own.now());
    const error = await this.#try(bucket, { notify, target, fields }, AbortSignal.any([signal, this.#ending.signal]));
    return { id, error };
  }

  /** Tries a message again now, and then for another day. Throws `not_found`, and `invalid_request` for one that was sent. */
  async retry(bucket: RootBucket, id: string): Promise<Message> {
    const book = await this.#open(bucket.id);
    const found = book?.state.messages.find((one) => one.id === id.toLowerCase());
    if (!book || !found) throw new Failure("not_found", `there is no message ${quote(id)}`);
    if (found.state === "sent") throw new Failure("invalid_request", `message ${quote(id)} was sent already`);
    const again = { state: "waiting", attempts: 0, next_at: new Date(this.#own.now()).toISOString() } as const;
    await this.#change(book, (state) => void Object.assign(messageIn(state, found.id) ?? {}, again));
    return { ...found, ...again };
  }

  async #open(id: string): Promise<Book | undefined> {
    const known = this.#books.get(id);
    if (known) return known;
    const layout = layoutOf(path.join(this.#own.root, id), this.#own.labels);
    if (!(await exists(layout.database))) return undefined;
    return await this.#own.lines.alone(nameOf(id), NEVER, async () => {
      const before = this.#books.get(id);
      if (before) return before;
      const bucket = findBucket(this.#own.root, id, this.#own.labels);
      const state = await readMessageState(layout);
      const isKnown = state !== undefined;
      const book = { bucket, state: state ?? EMPTY, text: "", isKnown, version: "", notify: undefined, sending: new Map() };
      this.#books.set(id, book);
      return book;
    });
  }

  async #look(book: Book): Promise<void> {
    const { sources, now, root, labels } = this.#own;
    const version = sources.version(book.bucket);
    if (version === book.version) return;
    await this.#own.lines.alone(`look at ${nameOf(book.bucket.id)}`, NEVER, async () => {
      book.bucket = findBucket(root, book.bucket.id, labels);
      const look = await sources.look(book.bucket, book.isKnown ? book.state : undefined);
      await this.#change(book, (next) => {
        const left = next.incidents.flatMap((one) => (one.over_at === null ? one.left : []));
        noteFindings(next, findingsOf(look, left), now());
        if (look.notify) noteMessages(next, look.notify, now());
        next.runs = look.runs;
        next.change = look.change;
      });
      book.isKnown = true;
      book.notify = look.notify ?? book.notify;
      book.version = look.isActive ? "" : version;
    });
  }

  /** Changes the state of a bucket, on the disk first. */
  async #change(book: Book, change: (state: MessageState) => void): Promise<void> {
    await this.#own.lines.alone(nameOf(book.bucket.id), NEVER, async () => {
      const next = structuredClone(book.state);
      change(next);
      const text = `${JSON.stringify(next, null, 1)}\n`;
      if (text !== book.text) await writeMessageState(book.bucket.layout, text);
      Object.assign(book, { state: next, text });
    });
  }

  /** Begins to send what is due, to each target one message at a time. */
  #deliver(book: Book): void {
    const now = this.#own.now();
    const { notify } = book;
    if (!notify || isQuiet(notify.quiet, now)) return;
    const waiting = book.state.messages.filter((one) => one.state === "waiting");
    for (const target of new Set(waiting.map((one) => one.target))) {
      if (book.sending.has(target)) continue;
      const message = nextFor(
        waiting.filter((one) => one.target === target),
        now,
      );
      if (message)
        book.sending.set(
          target,
          this.#attempt(book, notify, message).finally(() => book.sending.delete(target)),
        );
    }
  }

  async #attempt(book: Book, notify: Notify, message: Message): Promise<void> {
    const { bucket, state } = book;
    const incident = state.incidents.find(({ id }) => id === message.incident);
    const { signal } = this.#ending;
    const fields = incident && fieldsOf(message, incident, bucket);
    const gone = "what it tells of is not known any more";
    const error = fields ? await this.#try(bucket, { notify, target: message.target, fields }, signal) : gone;
    faultPoint("message: tried");
    // What a stop has cut short was no attempt.
    if (error !== null && signal.aborted) return;
    try {
      await this.#change(book, (next) => {
        const own = messageIn(next, message.id);
        if (own) this.#noteAttempt(bucket, own, error);
      });
    } catch (failure) {
      this.#tell(bucket.id, failure);
      await sleep(UNWRITTEN_MS, signal).catch(() => {});
    }
  }

  async #try(
    bucket: RootBucket,
    what: Omit<Parameters<Courier["send"]>[0], "layout">,
    signal: AbortSignal,
  ): Promise<string | null> {
    try {
      await this.#own.courier.send({ layout: bucket.layout, ...what }, signal);
      return null;
    } catch (error) {
      return messageOf(error).slice(0, MOST_ERROR).toWellFormed();
    }
  }

  #noteAttempt({ id }: RootBucket, message: Message, error: string | null): void {
    const now = this.#own.now();
    const pause = PAUSES[message.attempts];
    message.attempts++;
    message.error = error;
    message.next_at = null;
    if (error === null) Object.assign(message, { state: "sent", sent_at: new Date(now).toISOString() });
    else if (pause !== undefined) message.next_at = new Date(now + pause * SECOND_MS).toISOString();
    else {
      message.state = "failed";
      this.#own.log(`bucket ${id}: message ${message.id} to ${message.target} is given up: ${error}`);
    }
  }

  #tell(id: string, error: unknown): void {
    const message = messageOf(error);
    if (this.#ending.signal.aborted) return;
    if (this.#told.get(id) !== message)
      this.#own.log(`Cannot look for messages of ${id === "" ? this.#own.root : `bucket ${id}`}: ${message}`);
    this.#told.set(id, message);
  }
}

const NEVER = new AbortController().signal;
const EMPTY: MessageState = { runs: [], change: 0, incidents: [], messages: [] };

function nameOf(bucketId: string): string {
  return `messages of ${bucketId}`;
}

function messageIn(state: MessageState, id: string): Message | undefined {
  return state.messages.find((one) => one.id === id);
}

/** The first message that is due; one about an incident waits for those before it. A time that is too far away is a clock that was changed. */
function nextFor(waiting: readonly Message[], now: number): Message | undefined {
  return waiting.find(({ incident, next_at }, index) => {
    const next = Date.parse(next_at ?? "");
    const isDue = !(next > now) || next > now + LONGEST_RETRY_MS;
    return isDue && !waiting.slice(0, index).some((before) => before.incident === incident);
  });
}
