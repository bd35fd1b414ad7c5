import { once } from "node:events";
import type { ClientRequest, IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { SecureContext } from "node:tls";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { LastLines, plainLine } from "../../core/plain-text.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";

interface TcpProbe {
  type: "tcp";
  host: string;
  port: number;
  timeoutMs: number;
}

interface HttpProbe {
  type: "http";
  scheme: "http" | "https";
  host: string;
  port: number;
  path: string;
  expectStatus: number;
  timeoutMs: number;
  /** The bucket's CA (PEM), trusted besides those of Node and of the system. */
  ca?: string;
}

interface CommandProbe {
  type: "ssh";
  transport: Transport;
  command: string;
  timeoutMs: number;
  /** Called when the command begins on the worker. */
  onBegin?: () => void;
  /** See {@link ScriptOptions}. */
  isShort?: ScriptOptions["isShort"];
}

/**
 * One check of a manifest's `health_check`, its port looked up. `host` may be a name or an address, without brackets.
 */
export type ProbeTarget = TcpProbe | HttpProbe | CommandProbe;

/** What a probe found. `evidence` is one line: what was asked, what came, of a good answer the first 2 KiB. */
export interface ProbeResult {
  ok: boolean;
  evidence: string;
  /** The last lines of a command that failed. */
  said?: LastLines;
  /** The time of the request or command alone, without waits before it. */
  durationMs: number;
  /** The worker was not reached, so the state of the job is unknown. */
  isUnreachable?: boolean;
}

/** An answer without its time. */
type ProbeAnswer = Pick<ProbeResult, "ok" | "evidence">;

const EVIDENCE_BYTES = 2 * 1024;

/**
 * Carries out one check, once. Its time begins with its request or command: the waits before it (for a free place, for
 * the connection over ssh) have limits of their own. A check that fails, for whatever reason, is an answer and no
 * error; throws only `cancelled`, at once.
 */
export async function probe(target: ProbeTarget, signal?: AbortSignal): Promise<ProbeResult> {
  throwIfCancelled(signal);
  const probing = target.type === "ssh" ? probeCommand(target, signal) : probeNetwork(target, signal);
  const found = await probing.catch((error: unknown) => ({
    ok: false,
    evidence: probeErrorText(error),
    durationMs: 0,
    ...(error instanceof Failure && error.code === "unreachable" && { isUnreachable: true }),
  }));
  throwIfCancelled(signal);
  const evidence = `${targetName(target)}: ${found.evidence}`.replace(/\s+/g, " ").trim();
  return { ...found, evidence: plainLine(evidence, Number.POSITIVE_INFINITY).replace(/:$/, "") };
}

async function probeNetwork(target: TcpProbe | HttpProbe, signal: AbortSignal | undefined): Promise<ProbeResult> {
  const ask = target.type === "tcp" ? (stop: AbortSignal) => tcpAnswer(target, stop) : await httpQuestion(target);
  const started = performance.now();
  const timeout = AbortSignal.timeout(target.timeoutMs);
  const answer = await ask(signal ? AbortSignal.any([signal, timeout]) : timeout).catch((error: unknown) => ({
    ok: false,
    evidence: timeout.aborted ? noAnswer(target.timeoutMs) : probeErrorText(error),
  }));
  return { ...answer, durationMs: performance.now() - started };
}

function noAnswer(timeoutMs: number): string {
  return `no answer within ${timeoutMs / 1000} s`;
}

async function tcpAnswer({ host, port }: TcpProbe, signal: AbortSignal): Promise<ProbeAnswer> {
  const socket = connect({ host, port, signal });
  try {
    await once(socket, "connect");
    return { ok: true, evidence: "connected" };
  } finally {
    socket.on("error", () => {}).destroy();
  }
}

/** Prepares a request, which takes longer than many an answer. */
async function httpQuestion({ scheme, host, port, path, expectStatus, ca = "" }: HttpProbe) {
  // Loading these is slow, and most processes never probe.
  const { request } = scheme === "https" ? await import("node:https") : await import("node:http");
  const trust = scheme === "https" && { secureContext: await trusting(ca) };
  return (signal: AbortSignal) => httpAnswer(request({ host, port, path, signal, agent: false, ...trust }), expectStatus);
}

async function httpAnswer(call: ClientRequest, expectStatus: number): Promise<ProbeAnswer> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    // After a switch of protocols (101) there is neither a response nor an error.
    const closed = () => reject(new Error("the connection was closed without an answer"));
    call.once("response", resolve).once("error", reject).once("close", closed).end();
  });
  const ok = answer.statusCode === expectStatus;
  const expected = ok ? "" : ` instead of ${expectStatus}`;
  return { ok, evidence: `status ${answer.statusCode}${expected}: ${await beginningOf(answer)}` };
}

const contexts = new Map<string, SecureContext>();

/** The trusted certificates, read and parsed once: that takes longer than a probe. */
async function trusting(ca: string): Promise<SecureContext> {
  const known = contexts.get(ca);
  if (known) return known;
  const { createSecureContext, getCACertificates } = await import("node:tls");
  const usual = [...getCACertificates("default"), ...getCACertificates("system")];
  const context = createSecureContext({ ca: [...usual, ca] });
  contexts.set(ca, context);
  return context;
}

/** The status decides: a body that breaks off or never ends is only evidence. */
async function beginningOf(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of answer) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= EVIDENCE_BYTES) break;
    }
  } catch {}
  return Buffer.concat(chunks).subarray(0, EVIDENCE_BYTES).toString();
}

async function probeCommand(asked: CommandProbe, signal: AbortSignal | undefined): Promise<ProbeResult> {
  const { transport, command, timeoutMs, onBegin, isShort } = asked;
  const said = new LastLines();
  const onLine = (line: string) => said.add(line);
  const options = { signal, timeoutMs, onLine, onBegin, isShort, keepBytes: EVIDENCE_BYTES };
  const outcome = await transport.script(command, options);
  const { reason, exitCode, stdout, stderr, durationMs } = outcome;
  if (reason === "timeout") return { ok: false, evidence: noAnswer(timeoutMs), said, durationMs };
  const how = outcome.signal === null ? `exit code ${exitCode}` : `ended by ${outcome.signal}`;
  if (exitCode !== 0) return { ok: false, evidence: how, said, durationMs };
  return { ok: true, evidence: `${how}: ${`${stdout} ${stderr}`.slice(0, EVIDENCE_BYTES)}`, durationMs };
}

function targetName(target: ProbeTarget): string {
  if (target.type === "ssh") return `command on ${target.transport.worker.host}`;
  const host = target.host.includes(":") ? `[${target.host}]` : target.host;
  const place = `${host}:${target.port}`;
  return target.type === "tcp" ? `tcp ${place}` : `GET ${target.scheme}://${place}${target.path}`;
}

const PROBE_ERRORS: Record<string, string> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "the connection was closed without an answer",
  EHOSTUNREACH: "no route to the host",
  ENOTFOUND: "unknown host",
  EPROTO: "the TLS handshake failed",
};

function probeErrorText(error: unknown): string {
  // The error for a name with several addresses has a code but no message.
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  return PROBE_ERRORS[code] ?? (messageOf(error) || code);
}
