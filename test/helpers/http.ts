import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { connect, type Socket } from "node:net";
import path from "node:path";
import type { TestContext } from "node:test";
import { Launcher } from "../../lib/core/spawn.ts";
import { type Listener, type ListenOptions, listen } from "../../lib/http/listen.ts";
import { type HttpRequest, json } from "../../lib/http/message.ts";
import { LIMITS, type Limits } from "../../lib/http/node-server.ts";
import { temporaryFolder } from "./temporary.ts";

/** A server of lib/http for one test, on a free loopback port, with the real limits unless some are given. */
export async function listenFor(
  t: Pick<TestContext, "after">,
  options: Omit<Partial<ListenOptions>, "limits"> & { limits?: Partial<Limits> },
): Promise<Listener> {
  const limits = { ...LIMITS, ...options.limits };
  const handle = async () => json(200, { fine: true });
  const listener = await listen({ host: "127.0.0.1", port: 0, handle, ...options, limits });
  t.after(() => listener.close(0));
  return listener;
}

/** A plain connection of its own, for what no HTTP client would send. */
export function dial(t: Pick<TestContext, "after">, port: number): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  t.after(() => socket.destroy());
  return socket;
}

/** Sends text as it is and answers all that comes back until the server closes. */
export async function exchangeText(t: Pick<TestContext, "after">, port: number, text: string): Promise<string> {
  const socket = dial(t, port);
  const received: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => received.push(chunk));
  socket.write(text);
  if (!socket.closed) await once(socket, "close");
  return Buffer.concat(received).toString();
}

/** One request on a connection of its own: from a certain address, trusting a certain certificate. */
export async function send(
  url: string,
  options: {
    method?: string;
    headers?: Record<string, string>;
    body?: string | Uint8Array | undefined;
    ca?: Buffer | undefined;
    from?: string | undefined;
  },
): Promise<Response> {
  const { body, from, ...rest } = options;
  const start = url.startsWith("https:") ? httpsRequest : httpRequest;
  const request = start(url, { ...rest, agent: false, ...(from !== undefined && { localAddress: from }) });
  const [incoming] = await once(request.end(body), "response");
  const headers = new Headers();
  for (const [name, values] of Object.entries<string[]>(incoming.headersDistinct))
    for (const value of values) headers.append(name, value);
  const chunks: Buffer[] = await incoming.toArray();
  const hasNoBody = [204, 304].includes(incoming.statusCode);
  return new Response(hasNoBody ? null : Buffer.concat(chunks), { status: incoming.statusCode, headers });
}

/** A self-signed certificate for localhost and 127.0.0.1, made by openssl. */
export async function certificateFor(t: Pick<TestContext, "after">): Promise<{ certFile: string; keyFile: string }> {
  return selfSigned(t, ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
}

/** A self-signed certificate like `certificateFor`, with a key that openssl's `-newkey` makes of these words. */
export async function selfSigned(
  t: Pick<TestContext, "after">,
  newKey: readonly string[],
): Promise<{ certFile: string; keyFile: string }> {
  const folder = temporaryFolder(t);
  const [certFile, keyFile] = [path.join(folder, "cert.pem"), path.join(folder, "key.pem")];
  const outcome = await new Launcher(process.env).run([
    ...(["openssl", "req", "-x509", "-newkey", ...newKey, "-nodes"] as const),
    ...["-keyout", keyFile, "-out", certFile, "-days", "2", "-subj", "/CN=localhost"],
    ...["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
  ]);
  if (outcome.exitCode !== 0) throw new Error(outcome.stderr);
  return { certFile, keyFile };
}

/** A request as a handler gets it, without a connection: `more` says what is not as in a plain GET with this body. */
export function requestWith(chunks: (string | Uint8Array)[], more: Partial<HttpRequest>): HttpRequest {
  async function* body() {
    for (const chunk of chunks) yield Buffer.from(chunk);
  }
  return {
    id: "r1",
    method: "GET",
    path: "/",
    query: "",
    headers: {},
    peer: "127.0.0.1",
    scheme: "http",
    signal: new AbortController().signal,
    body: body(),
    longPoll() {},
    admitted() {},
    noted: { route: undefined, authenticated: undefined, name: undefined, refused: undefined },
    ...more,
  };
}
