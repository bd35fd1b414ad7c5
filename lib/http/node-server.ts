import type { Server } from "node:http";

/** How long a client may take, in milliseconds, and how much it may send as headers. */
export interface Limits {
  /** From the first byte of a request (or the connection) to the end of its headers. */
  headersMs: number;
  /** From the first byte of a request to the end of its body. */
  requestMs: number;
  /** From the end of the request to the last byte of the answer, long-polls not counted. */
  writeMs: number;
  /** Between two requests of a connection. */
  idleMs: number;
  headerBytes: number;
  /** For the rest of a body that is not read any more: a connection cut at once could lose the answer. */
  lingerMs: number;
  /** How often connections that are too slow are looked for. */
  checkMs: number;
}

/** control-plane.md, Limits: fixed, no flag changes them. */
export const LIMITS: Readonly<Limits> = {
  headersMs: 10_000,
  requestMs: 600_000,
  writeMs: 90_000,
  idleMs: 120_000,
  headerBytes: 1024 * 1024,
  lingerMs: 5_000,
  checkMs: 1_000,
};

/** A certificate with its chain, and its key: PEM texts. */
export interface TlsPair {
  cert: string;
  key: string;
}

/**
 * Stronger than Node's defaults, and not changed by Node's command line. The list names the TLS 1.2 ciphers with an
 * ephemeral key exchange, so that a stolen certificate key opens no recorded traffic. All ciphers of TLS 1.3 have one.
 */
export const TLS_RULES = { minVersion: "TLSv1.2", ciphers: "ECDHE+AESGCM:ECDHE+CHACHA20" } as const;

/**
 * Node's server with these limits on it; `close` and the timeouts work once it listens.
 * Only a process that serves HTTP pays for loading it (decisions: Runtime 3).
 */
export function nodeServer(tls: TlsPair | undefined, limits: Limits): Server {
  const options = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersMs,
    requestTimeout: limits.requestMs,
    keepAliveTimeout: limits.idleMs,
    connectionsCheckingInterval: limits.checkMs,
    // Node's own refusal of a request without Host would lack the security headers.
    requireHostHeader: false,
  };
  const secure = { ...options, ...tls, ...TLS_RULES, handshakeTimeout: limits.headersMs };
  const server = tls
    ? process.getBuiltinModule("node:https").createServer(secure)
    : process.getBuiltinModule("node:http").createServer(options);
  // Node alone refuses more than 2,000 headers, however short. As many as go into the bytes take a tenth of a second.
  server.maxHeadersCount = 0;
  return server;
}
