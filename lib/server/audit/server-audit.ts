import { AuditLog } from "../../audit/log.ts";
import { AuditSink } from "../../audit/sink.ts";
import { exclusively } from "../../bucket/base/database.ts";
import { messageOf } from "../../core/errors.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { EventLog } from "../../run/events.ts";
import { AuditRecorder } from "./recorder.ts";

/** What a {@link ServerAudit} needs. */
interface ServerAuditOptions {
  root: string;
  /** The command that gets a copy of each line; undefined for none. */
  sink: string | undefined;
  launcher: Launcher;
  log: (sentence: string) => void;
  now: () => number;
}

/** The audit of a server that runs: its file, what the server writes into it, and the copy elsewhere. */
export class ServerAudit {
  readonly file: AuditLog;
  readonly recorder: AuditRecorder;
  readonly #sink: AuditSink | undefined;
  readonly #log: (sentence: string) => void;

  constructor({ root, sink, launcher, log, now }: ServerAuditOptions) {
    this.file = new AuditLog({ root, takeTurns: exclusively, tell: log, now });
    this.recorder = new AuditRecorder(this.file, { root, now });
    this.#sink = sink === undefined ? undefined : new AuditSink({ command: sink, audit: this.file, launcher, tell: log });
    this.#log = log;
  }

  /**
   * Begins with the line that the server starts, and prints the public key and where the audit ends now. Where nothing can be
   * written the server starts all the same: it answers readings, and refuses what changes something.
   */
  async start(facts: object, events: EventLog): Promise<void> {
    const before = await this.file.end().catch(() => undefined);
    this.#sink?.start(before ?? { file: "", size: 0 });
    await this.recorder.start(facts, events);
    try {
      const { publicKey, fingerprint } = await this.file.key();
      const { n, hash } = await this.file.head();
      this.#log(`audit: public key ${publicKey} (${fingerprint}); it ends at line ${n}, ${hash}`);
    } catch (error) {
      if (before) this.#log(messageOf(error));
    }
  }

  /** Ends with the line that the server stops. */
  async stop(): Promise<void> {
    await this.recorder.stop();
    await this.#sink?.close();
  }
}
