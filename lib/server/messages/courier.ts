import { createHmac } from "node:crypto";
import type { Layout } from "../../bucket/base/layout.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { loadKvKey, NOTIFY_SECRETS } from "../../bucket/kv/kv-access.ts";
import { type MessageFields, renderBody } from "../../bucket/notify/body.ts";
import { addressProblem, type Notify, type NotifyTarget, type TextOrSecret } from "../../bucket/notify/notify.ts";
import { Redactor } from "../../core/redact.ts";
import { programVersion } from "../../core/self.ts";
import { parsedJson, quote } from "../../core/shape.ts";
import type { Argv, Launcher, OtherUser } from "../../core/spawn.ts";
import type { Readers } from "../reading.ts";
import { runMessageCommand } from "./command.ts";
import { type LookupAll, type Post, sendPost } from "./webhook.ts";

const BODY_BYTES = 256 * 1024;

/** A message on its way. */
export interface Delivery {
  layout: Layout;
  notify: Notify;
  /** The name of the target. */
  target: string;
  fields: MessageFields;
}

/** What a bucket keeps secret. */
interface Secrets {
  redactor: Redactor;
  /** The text, or the secret that it names, without the end of its line. */
  open(text: TextOrSecret): string;
}

interface CourierMeans {
  readers: Pick<Readers, "read">;
  launcher: Launcher;
  /** Whom commands run as; undefined for the user of the server. */
  hookUser?: OtherUser | undefined;
  now: () => number;
  /** For tests. */
  lookUp?: LookupAll;
}

/** Brings messages to their targets. */
export class Courier {
  readonly #own: CourierMeans;

  constructor(own: CourierMeans) {
    this.#own = own;
  }

  /** Sends a message once. Throws a sentence without secrets where the target has not taken it. */
  async send({ layout, notify, target: name, fields }: Delivery, signal: AbortSignal): Promise<void> {
    const target = notify.targets[name];
    if (!target) throw new Error(`there is no target ${quote(name)} in notify.json any more`);
    const { redactor, open } = await this.#secrets(layout);
    try {
      const body = redactor.apply(renderBody(target.body, notify.templates, maskedFields(fields, redactor)));
      if (Buffer.byteLength(body) > BODY_BYTES) throw new Error(`the body has more than ${BODY_BYTES} bytes`);
      if (target.command) await runMessageCommand(this.#own, target.command as unknown as Argv, body, signal);
      else await sendPost(this.#postOf(target, { id: fields.ID, event: fields.Event, body, open }), signal, this.#own.lookUp);
    } catch (error) {
      throw new Error(redactor.apply(error instanceof Error ? error.message : String(error)));
    }
  }

  #postOf(
    { webhook = "", headers: given, sign, body: kind, isPrivate }: NotifyTarget,
    { id, event, body, open }: { id: string; event: string; body: string; open: Secrets["open"] },
  ): Post {
    const address = open(webhook);
    const problem = addressProblem(address);
    if (problem !== undefined) throw new Error(`its address: ${problem}`);
    const url = new URL(address);
    const isMatrix = kind === "matrix";
    // The id of a transaction: Matrix drops repeats by it.
    if (isMatrix) url.pathname = `${url.pathname.replace(/\/$/, "")}/${id}`;
    const headers = new Headers({
      "Content-Type": parsedJson(body) === undefined ? "text/plain; charset=utf-8" : "application/json",
      "User-Agent": `ops/${programVersion()}`,
    });
    for (const [name, text] of Object.entries(given)) setHeader(headers, name, open(text));
    headers.set("Ops-Message-Id", id);
    headers.set("Ops-Event", event);
    if (sign) headers.set("Ops-Signature", signatureOf(body, open(sign), Math.floor(this.#own.now() / 1_000)));
    return { url, method: isMatrix ? "PUT" : "POST", headers: Object.fromEntries(headers), body, isPrivate };
  }

  /** The secrets of a bucket; nothing is sent where they cannot be read, because nothing could be masked. */
  async #secrets(layout: Layout): Promise<Secrets> {
    const key = await loadKvKey(layout);
    return await this.#own.readers.read(layout, (db) => {
      const kv = new KvStore(db, key);
      const redactor = new Redactor();
      for (const { value } of kv.secrets()) redactor.add(value);
      const own = kv.entries(NOTIFY_SECRETS);
      const open = (text: TextOrSecret) => {
        if (typeof text === "string") return text;
        const value = own.get(text.secret);
        if (value !== undefined) return value.replace(/\r?\n$/, "");
        throw new Error(`there is no secret ${quote(text.secret)}: ops notify set-secret stores it`);
      };
      return { redactor, open };
    });
  }
}

/** `t=<seconds since 1970>,v1=<HMAC-SHA256 in hex>` over the time, a dot and the body. */
function signatureOf(body: string, key: string, seconds: number): string {
  return `t=${seconds},v1=${createHmac("sha256", key).update(`${seconds}.${body}`).digest("hex")}`;
}

function setHeader(headers: Headers, name: string, value: string): void {
  try {
    headers.set(name, value);
  } catch {
    throw new Error(`the header ${name} has characters that no header can have`);
  }
}

/** A template may change the form of a text, so that a secret in it would not be found any more. */
function maskedFields(fields: MessageFields, redactor: Redactor): MessageFields {
  const { Subject, Text, Reason, Places } = fields;
  const masked = { Subject: redactor.apply(Subject), Text: redactor.apply(Text), Reason: redactor.apply(Reason) };
  return { ...fields, ...masked, Places: Places.map((place) => redactor.apply(place)) };
}
