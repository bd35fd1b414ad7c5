import { connect, type Socket } from "node:net";
import { Writable } from "node:stream";

/**
 * How a session ended: with the exit code of its command (255 where a signal ended that), `refused` where sshd allows
 * no further session, `unconnected` where the master did not answer and nothing was started, or `lost`.
 */
export type SessionEnd = number | "refused" | "unconnected" | "lost";

/** Who takes what the command says. */
type SessionReader = (chunk: Buffer, stream: "stdout" | "stderr") => void;

/** What is said on a control socket before it is in proxy mode (OpenSSH, PROTOCOL.mux). */
const HELLO = 1;
const VERSION = 4;
const PROXY = 0x1000_000f;
const IS_PROXY = 0x8000_000f;

/** The messages of a channel (RFC 4254). */
const OPEN = 90;
const OPENED = 91;
const NOT_OPENED = 92;
const ADJUST = 93;
const DATA = 94;
const EXTENDED_DATA = 95;
const EOF = 96;
const CLOSE = 97;
const REQUEST = 98;
const REQUEST_FAILED = 100;

/** Each control connection has one channel only. */
const OURS = 0;
const WINDOW = 2 * 1024 * 1024;
const LONGEST_PACKET = 32 * 1024;
/** Beyond any message that ssh sends. */
const LONGEST_MESSAGE = 256 * 1024;
const ENDED_BY_SIGNAL = 255;

/**
 * One command on a worker, as a session of the connection that a master holds. It is spoken over the master's control
 * socket in proxy mode: unencrypted messages of the ssh connection protocol, which the master passes on. So a session
 * costs no process here, and closing the socket closes it.
 */
export class Session {
  /** The command's standard input; what is written waits until the worker takes it. */
  readonly stdin: Writable;
  /** Resolves once, when nothing can come any more. */
  readonly ended: Promise<SessionEnd>;
  readonly #settle: (end: SessionEnd) => void;
  readonly #socket: Socket;
  readonly #command: string;
  readonly #reader: SessionReader;
  #end: SessionEnd = "unconnected";
  #held: Buffer = Buffer.alloc(0);
  #isProxy = false;
  #isGivenUp = false;
  #ready: () => void = () => {};
  #theirs = 0;
  #room = 0;
  #longest = 0;
  #taken = 0;
  #writing: { rest: Buffer; done: (error?: Error | null) => void } | undefined;

  /** Opens it; `socket` is the path of the master's control socket. */
  constructor(socket: string, command: string, reader: SessionReader) {
    this.#command = command;
    this.#reader = reader;
    this.#socket = connect(socket);
    this.stdin = new Writable({
      highWaterMark: 2 * LONGEST_PACKET,
      construct: (ready) => {
        this.#ready = ready;
      },
      // All that has come meanwhile goes as one: each packet costs both sides a little.
      writev: (parts, done) => {
        this.#writing = { rest: Buffer.concat(parts.map(({ chunk }) => chunk)), done };
        this.#pump();
      },
      final: (done) => {
        this.#send(EOF, this.#theirs);
        done();
      },
    });
    // Who writes to a session that has ended learns that from `ended`.
    for (const stream of [this.stdin, this.#socket]) stream.on("error", () => {});
    this.#socket.on("data", (chunk) => this.#take(chunk as Buffer));
    const { promise, resolve } = Promise.withResolvers<SessionEnd>();
    this.ended = promise;
    this.#settle = (end) => {
      this.stdin.destroy();
      resolve(end);
    };
    this.#socket.once("close", () => this.#settle(this.#end));
    this.#socket.write(Buffer.concat([greeting(HELLO, VERSION), greeting(PROXY, 0)]));
  }

  /** True once the worker's sshd has answered the request for the session. */
  get isOpen(): boolean {
    return this.#end !== "unconnected";
  }

  /** Gives the session up; sshd closes what it has open for it. */
  close(): void {
    this.#isGivenUp = true;
    // Where the socket goes while a session is not open, or was not opened, ssh ends with the whole connection.
    if (this.#isProxy && this.#end === "unconnected") this.#settle("lost");
    else this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    try {
      this.#held = this.#takeMessages(this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]));
    } catch {
      // What a worker's sshd says comes through as it is: a message that breaks off ends the session.
      this.#socket.destroy();
    }
  }

  /** Takes all messages that are whole; answers the rest. */
  #takeMessages(bytes: Buffer): Buffer {
    let rest = bytes;
    while (rest.length >= 4) {
      const length = rest.readUInt32BE(0);
      if (length > LONGEST_MESSAGE) throw new RangeError("too long");
      if (rest.length < 4 + length) break;
      const message = rest.subarray(4, 4 + length);
      if (this.#isProxy) this.#onMessage(message.readUInt8(1), message.subarray(2));
      else this.#onGreeting(message);
      rest = rest.subarray(4 + length);
    }
    return rest;
  }

  #onGreeting(message: Buffer): void {
    const type = message.readUInt32BE(0);
    this.#isProxy = type === IS_PROXY;
    if (this.#isProxy) this.#send(OPEN, "session", OURS, WINDOW, LONGEST_PACKET);
    else if (type !== HELLO || message.readUInt32BE(4) !== VERSION) this.#socket.destroy();
  }

  /** Every message that comes is one for our channel: its number is in front. */
  #onMessage(type: number, message: Buffer): void {
    if (type === OPENED) this.#onOpened(message);
    else if (type === NOT_OPENED) this.#settle("refused");
    else if (type === ADJUST) this.#onRoom(message.readUInt32BE(4));
    else if (type === DATA) this.#onData(message.subarray(8), "stdout");
    else if (type === EXTENDED_DATA) this.#onData(message.subarray(12), "stderr");
    else if (type === REQUEST) this.#onRequest(message);
    else if (type === CLOSE) this.#onClosed();
  }

  #onOpened(message: Buffer): void {
    this.#theirs = message.readUInt32BE(4);
    this.#room = message.readUInt32BE(8);
    this.#longest = Math.max(1, Math.min(message.readUInt32BE(12), LONGEST_PACKET));
    this.#end = "lost";
    if (this.#isGivenUp) this.close();
    else this.#send(REQUEST, this.#theirs, "exec", false, this.#command);
    this.#ready();
  }

  #onRoom(more: number): void {
    this.#room += more;
    this.#pump();
  }

  #onData(data: Buffer, stream: "stdout" | "stderr"): void {
    this.#reader(data, stream);
    this.#taken += data.length;
    if (this.#taken < WINDOW / 2) return;
    this.#send(ADJUST, this.#theirs, this.#taken);
    this.#taken = 0;
  }

  #onClosed(): void {
    if (this.#end === "lost") this.#end = ENDED_BY_SIGNAL;
    this.#send(CLOSE, this.#theirs);
    this.#socket.destroySoon();
  }

  #onRequest(message: Buffer): void {
    const length = message.readUInt32BE(4);
    const name = message.toString("latin1", 8, 8 + length);
    const wantsReply = message[8 + length] === 1;
    if (name === "exit-status") this.#end = message.readUInt32BE(9 + length);
    // sshd asks so whether its client is still there.
    if (wantsReply) this.#send(REQUEST_FAILED, this.#theirs);
  }

  /** Sends what is to be written, as far as the worker has room for it. */
  #pump(): void {
    while (this.#writing && this.#room > 0) {
      const { rest, done } = this.#writing;
      const size = Math.min(rest.length, this.#room, this.#longest);
      this.#room -= size;
      const isLast = size === rest.length;
      this.#writing = isLast ? undefined : { rest: rest.subarray(size), done };
      const bytes = packet(DATA, [this.#theirs, rest.subarray(0, size)]);
      this.#socket.write(bytes, isLast ? done : undefined);
    }
  }

  #send(type: number, ...fields: Field[]): void {
    this.#socket.write(packet(type, fields));
  }
}

/** A number of 32 bits, a boolean of one byte, or text with its length in front. */
type Field = number | boolean | string | Buffer;

function packet(type: number, fields: readonly Field[]): Buffer {
  const bytes = fields.flatMap(bytesOf);
  const length = bytes.reduce((sum, { length }) => sum + length, 2);
  // No padding: its length stands before the type.
  return Buffer.concat([uint32(length), Buffer.of(0, type), ...bytes]);
}

function bytesOf(field: Field): Buffer[] {
  if (typeof field === "number") return [uint32(field)];
  if (typeof field === "boolean") return [Buffer.of(field ? 1 : 0)];
  const bytes = typeof field === "string" ? Buffer.from(field) : field;
  return [uint32(bytes.length), bytes];
}

function greeting(type: number, value: number): Buffer {
  return Buffer.concat([uint32(8), uint32(type), uint32(value)]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
