import { connect, type Socket } from "node:net";
import { Writable } from "node:stream";

/**
 * How a session ended: with the exit code of its command (255 where a signal ended the command), `refused` where sshd
 * allows no further session, `unconnected` where the master did not answer and nothing was started, or `lost`.
 */
type SessionEnd = number | "refused" | "unconnected" | "lost";

/** Gets the output of the command. */
type SessionReader = (chunk: Buffer, stream: "stdout" | "stderr") => void;

/** What is said on a control socket before proxy mode (OpenSSH, PROTOCOL.mux). */
const HELLO = 1;
const MUX_VERSION = 4;
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

/** Our number of the channel: each control connection has only one. */
const OURS = 0;
const WINDOW = 2 * 1024 * 1024;
const LONGEST_PACKET = 32 * 1024;
/** Longer than any message that ssh sends. */
const LONGEST_MESSAGE = 256 * 1024;
const ENDED_BY_SIGNAL = 255;

/**
 * One command on a worker, as a session of the connection that a master holds. The session speaks over the master's
 * control socket in proxy mode: unencrypted messages of the ssh connection protocol, which the master passes on. So a
 * session costs no process here, and closing the socket closes the session.
 */
export class SshSession {
  /** The command's standard input; what is written waits until the worker takes it. */
  readonly stdin: Writable;
  /** Resolves once the worker's sshd has answered the request for the session. */
  readonly opened: Promise<void>;
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
  /** The worker's number of the channel, the bytes that it has room for, and the longest packet that it takes. */
  #theirs = 0;
  #room = 0;
  #longest = 0;
  /** The bytes of output that no room was given back for yet. */
  #taken = 0;
  #writing: { rest: Buffer; done: (error?: Error | null) => void } | undefined;

  /** Opens the session; `socket` is the path of the master's control socket. */
  constructor(socket: string, command: string, reader: SessionReader) {
    this.#command = command;
    this.#reader = reader;
    this.#socket = connect(socket);
    const opened = Promise.withResolvers<void>();
    this.opened = opened.promise;
    this.stdin = new Writable({
      highWaterMark: 2 * LONGEST_PACKET,
      construct: (ready) => {
        this.#ready = () => {
          opened.resolve();
          ready();
        };
      },
      // Parts that have come meanwhile go together: each packet costs both sides a little.
      writev: (parts, done) => {
        this.#writing = { rest: Buffer.concat(parts.map(({ chunk }) => chunk)), done };
        this.#pump();
      },
      final: (done) => {
        this.#send(EOF, this.#theirs);
        done();
      },
    });
    // A writer learns from `ended` that the session has ended.
    for (const stream of [this.stdin, this.#socket]) stream.on("error", () => {});
    this.#socket.on("data", (chunk: Buffer) => this.#take(chunk));
    const { promise, resolve } = Promise.withResolvers<SessionEnd>();
    this.ended = promise;
    this.#settle = (end) => {
      this.stdin.destroy();
      resolve(end);
    };
    this.#socket.once("close", () => this.#settle(this.#end));
    // The master reads message by message: the answers need not be waited for.
    const open = packet(OPEN, ["session", OURS, WINDOW, LONGEST_PACKET]);
    this.#socket.write(Buffer.concat([greeting(HELLO, MUX_VERSION), greeting(PROXY, 0), open]));
  }

  /** True once the worker's sshd has answered the request for the session. */
  get isOpen(): boolean {
    return this.#end !== "unconnected";
  }

  /** Gives the session up; sshd closes what it has open for the session. */
  close(): void {
    this.#isGivenUp = true;
    // Where the socket closes before the session is open, ssh ends with the whole connection.
    if (this.#end === "unconnected") this.#settle("lost");
    else this.#socket.destroy();
  }

  /** Takes all messages that are whole, and holds the rest. */
  #take(chunk: Buffer): void {
    let rest = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    try {
      while (rest.length >= 4) {
        const end = 4 + rest.readUInt32BE(0);
        if (end > LONGEST_MESSAGE) throw new RangeError("too long");
        if (rest.length < end) break;
        if (this.#isProxy) this.#onMessage(rest.subarray(4, end));
        else this.#onGreeting(rest.subarray(4, end));
        rest = rest.subarray(end);
      }
      this.#held = rest;
    } catch {
      // Messages of a worker's sshd come through as they are: a message that breaks off ends the session.
      this.#socket.destroy();
    }
  }

  #onMessage(message: Buffer): void {
    // One byte tells the length of the padding; then comes the type. Every message is for our channel.
    const [type, body] = [message.readUInt8(1), message.subarray(2)];
    if (type === OPENED) this.#onOpened(body);
    // The socket stays open: were it closed now, ssh would end the whole connection.
    else if (type === NOT_OPENED) this.#settle("refused");
    else if (type === ADJUST) this.#onRoom(body.readUInt32BE(4));
    else if (type === DATA) this.#onData(body.subarray(8), "stdout");
    else if (type === EXTENDED_DATA) this.#onData(body.subarray(12), "stderr");
    else if (type === REQUEST) this.#onRequest(body);
    else if (type === CLOSE) this.#onClosed();
  }

  #onGreeting(message: Buffer): void {
    const type = message.readUInt32BE(0);
    this.#isProxy = type === IS_PROXY;
    if (!this.#isProxy && (type !== HELLO || message.readUInt32BE(4) !== MUX_VERSION)) this.#socket.destroy();
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

  #onRequest(message: Buffer): void {
    const length = message.readUInt32BE(4);
    const name = message.toString("latin1", 8, 8 + length);
    const wantsReply = message[8 + length] === 1;
    if (name === "exit-status") this.#end = message.readUInt32BE(9 + length);
    // By such a request sshd asks whether its client is still there.
    if (wantsReply) this.#send(REQUEST_FAILED, this.#theirs);
  }

  #onClosed(): void {
    if (this.#end === "lost") this.#end = ENDED_BY_SIGNAL;
    this.#send(CLOSE, this.#theirs);
    this.#socket.destroySoon();
  }

  /** Sends what is to be written, as far as the worker has room. */
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

  #send(type: number, ...fields: PacketField[]): void {
    this.#socket.write(packet(type, fields));
  }
}

/** A number of 32 bits, a boolean of one byte, or text with its length in front. */
type PacketField = number | boolean | string | Buffer;

function packet(type: number, fields: readonly PacketField[]): Buffer {
  // No padding: its length stands before the type.
  const bytes = [Buffer.of(0, type), ...fields.flatMap(fieldBytes)];
  return Buffer.concat([uint32(bytes.reduce((sum, { length }) => sum + length, 0)), ...bytes]);
}

function fieldBytes(field: PacketField): Buffer[] {
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
