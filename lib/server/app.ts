import path from "node:path";
import type { Guard, Identity } from "../auth/guard.ts";
import { ROOT_NAME } from "../auth/role.ts";
import { SESSION_COOKIE } from "../auth/session.ts";
import { type LabelFile, layoutOf } from "../bucket/base/layout.ts";
import { bucketIds, bucketNotFound, prepareRoot, takeRoot } from "../bucket/source/root.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { exists } from "../core/files.ts";
import type { Launcher } from "../core/spawn.ts";
import { CONNECTION_CAPS } from "../http/connections.ts";
import { type Listener, listen } from "../http/listen.ts";
import { type Answer, HTTP_STATUS, type HttpRequest } from "../http/message.ts";
import { callRoute, findRoute } from "../http/router.ts";
import { Supervisor } from "../run/supervisor.ts";
import { type Log, logExchange } from "./access.ts";
import { Approvals } from "./approval/approvals.ts";
import type { AuditRecorder } from "./audit/recorder.ts";
import { ServerAudit } from "./audit/server-audit.ts";
import { ReadThread } from "./beside.ts";
import { readServerToken, readTlsPair, type ServerConfig, tokenWarning } from "./config.ts";
import { readConsole } from "./console-files.ts";
import type { ServerRoute, Services } from "./context.ts";
import { Lines } from "./line.ts";
import { LogReadings } from "./log-readings.ts";
import { messengerOf } from "./messages/messenger.ts";
import { cookieWarning } from "./people/cookie-warning.ts";
import { requireAllowed, requireGoingOn } from "./people/permission.ts";
import { signInOf } from "./people/sign-in.ts";
import { Readers } from "./reading.ts";
import { ROUTES } from "./routes/table.ts";
import { RunList } from "./run-list.ts";
import { StaticFiles } from "./static.ts";
import { Pulse, SIGN_PATHS } from "./watch/pulse.ts";
import { LockedRuns } from "./watch/scheduled-runs.ts";
import { Scheduler } from "./watch/scheduler.ts";

/** How long open requests may take to finish when the server stops. The creation of a bucket takes longest. */
const CLOSE_WAIT_MS = 15_000;

/** A server that runs. */
interface RunningServer {
  url: string;
  /**
   * Reads the files again that may change while the server runs: certificate and key, for connections that begin from now on,
   * and its own token, which ends what goes on with the one before. Where one cannot be used, the log says so and what is in
   * use stays.
   */
  reload(): Promise<void>;
  /**
   * Takes no new connections, answers long-polls at once, asks active runs to stop and, after a bounded wait, kills them.
   * They end as `failed` with `server restarted before run completed`.
   */
  stop(): Promise<void>;
}

/**
 * Starts the control plane: takes the root, settles the runs that an earlier server left behind, and only then listens
 * (control-plane.md, Source push 5). `log` gets the access log and warnings, never a token. `now` is the clock of
 * sessions, codes and limits. Throws a sentence for people where the server cannot start.
 */
export async function startServer(
  config: ServerConfig,
  launcher: Launcher,
  log: Log,
  now: () => number = Date.now,
): Promise<RunningServer> {
  const { root, host, port, auditSink: sink, hookUser } = config;
  const tls = config.tls && (await readTlsPair(config.tls));
  const surface = config.earlier ? await (await import("./earlier/surface.ts")).earlierSurface() : await presentSurface();
  const { labels, routes } = surface;
  const files = new StaticFiles(surface.files);
  const supervisor = new surface.supervisor({ launcher, log, approvals: (id) => signIn.access.approvalsOf(id), hookUser });
  await using taken = new AsyncDisposableStack();
  taken.use(await takeRoot(root));
  const audit = new ServerAudit({ root, sink, launcher, log, now });
  taken.defer(() => audit.stop());
  const facts = { host, port, tls: !!tls, totp: !!config.totp, sink: !!sink, hook_user: hookUser?.name ?? null };
  await audit.start(facts, supervisor.events);
  await settleRoot(root, labels, supervisor, log);
  const { guard, ...signIn } = await signInOf(config, { cookie: surface.cookie, log, now });
  const reading = { readers: new Readers(), beside: new ReadThread(), logReadings: new LogReadings(launcher, { hookUser }) };
  const { readers, beside } = reading;
  const lines = new Lines();
  const { access } = signIn;
  const approvals = new Approvals({ access, lines, beside, now });
  const watch = new AbortController();
  const runs = new LockedRuns({ supervisor, lines, beside, access, audit: audit.recorder, signal: watch.signal });
  const pulse = new Pulse({ root, heartbeatUrl: config.heartbeatUrl, log });
  const scheduler = new Scheduler({ root, labels, readers, runs, log, now });
  const messenger = messengerOf({ root, labels, lines, log, now, supervisor, approvals, readers, launcher, hookUser });
  // No request is answered before the server listens.
  const load = () => listener.load();
  const own = { load, root, labels, supervisor, lines, approvals, launcher, scheduler, messenger, audit: audit.file };
  const services = { ...own, ...reading, ...signIn, runList: new RunList() };
  const listener = await listen({
    host,
    port,
    ...(tls && { tls }),
    caps: { ...CONNECTION_CAPS, onMet: log },
    handle: (request) => answer(request, { routes, files, guard, pulse, services, recorder: audit.recorder }),
    explain: (error, request) => explain(error, request, { root, routes }),
    onExchange(exchange) {
      logExchange(log, exchange);
      audit.recorder.exchanged(exchange);
    },
    onDefect: (id, error) => log(`request=${id} failed: ${error instanceof Error ? error.stack : error}`),
  });
  void files.compress("gzip");
  const watched = watchOver({ scheduler, messenger, pulse }, config.earlier === true, watch.signal);
  const lock = taken.move();
  const stop = async () => {
    watch.abort();
    await Promise.all([listener.close(CLOSE_WAIT_MS), supervisor.stop()]);
    await watched;
    await reading.logReadings.closed();
    readers.close();
    await beside.close();
    await access.close();
    await lock.disposeAsync();
  };
  const reload = async () => {
    await replaceCertificate(listener, config, log);
    await replaceToken({ guard, audit }, config, log);
  };
  return { url: listener.url, reload, stop };
}

/** What the server does by itself. Messages look first: a schedule that starts hides that it was missed before. */
async function watchOver(
  { scheduler, messenger, pulse }: Pick<Services, "scheduler" | "messenger"> & { pulse: Pulse },
  isIdle: boolean,
  signal: AbortSignal,
): Promise<void> {
  const beating = pulse.run(signal);
  if (!isIdle) await messenger.round();
  await Promise.all([scheduler.run(signal, { pulse, isIdle }), isIdle || messenger.run(signal), beating]);
}

/** What the server offers: its routes and files, the cookie of a session, and how it knows and runs its buckets. */
async function presentSurface() {
  const files = await readConsole();
  return { labels: "bucket.json", cookie: SESSION_COOKIE, routes: ROUTES, files, supervisor: Supervisor } as const;
}

/** Settles what an earlier server left behind, and says which buckets need an upgrade and which a newer program. */
async function settleRoot(root: string, labels: LabelFile, supervisor: Supervisor, log: Log): Promise<void> {
  await prepareRoot(root);
  const buckets = await bucketIds(root, labels);
  await supervisor.recover(buckets.map((id) => layoutOf(path.join(root, id))));
  const { schemaFailure } = await import("../bucket/base/database.ts");
  for (const id of buckets) {
    const { code, message } = schemaFailure(layoutOf(path.join(root, id)).database) ?? {};
    if (code === "schema_upgrade_required" || code === "schema_too_new") log(`bucket ${id}: ${message}`);
  }
  const warning = await cookieWarning(root, buckets);
  if (warning !== undefined) log(warning);
}

/** Reads the certificate again, for connections that begin from now on. */
async function replaceCertificate(listener: Listener, { tls }: ServerConfig, log: Log): Promise<void> {
  if (!tls) return;
  try {
    listener.replaceTls(await readTlsPair(tls));
    log("the certificate was read again; new connections get it");
  } catch (error) {
    log(`the certificate in use stays: ${messageOf(error)}`);
  }
}

/** Reads the server's own token again. Another one is told in the audit. */
async function replaceToken(
  { guard, audit }: { guard: Guard; audit: ServerAudit },
  { tokenFile }: ServerConfig,
  log: Log,
): Promise<void> {
  if (tokenFile === undefined) return;
  try {
    const token = await readServerToken(tokenFile);
    if (!guard.replaceToken(token)) return;
    audit.file.later({ what: "token", via: "server", facts: { replaced: ROOT_NAME } });
    log("the API token was read again: another one is in use, and the sessions of the one before have ended");
    const warning = tokenWarning({ token });
    if (warning !== undefined) log(warning);
  } catch (error) {
    log(`the API token in use stays: ${messageOf(error)}`);
  }
}

/** What requests are answered with. */
interface Offered {
  routes: readonly ServerRoute[];
  files: StaticFiles;
  guard: Guard;
  pulse: Pulse;
  services: Services;
  recorder: AuditRecorder;
}

/** Answers a request in the order that HTTP conventions say. Public are only the files of the sign-in page, and that the server lives. */
function answer(request: HttpRequest, own: Offered): Answer | Promise<Answer> {
  const isSign = SIGN_PATHS.has(request.path);
  const isFile = own.files.has(request.path);
  const found = isFile || isSign ? undefined : routeOf(own.routes, request);
  request.noted.route = isFile || isSign ? request.path : found?.route.path;
  if (isSign) return own.pulse.answer(request);
  // The API reference consists of files too, but they are not public.
  if (isFile && !request.path.startsWith("/docs")) return own.files.answer(request);
  const identity = own.guard.admit(request);
  request.admitted(identity.ends);
  request.noted.name = identity.name;
  request.noted.authenticated = `${identity.via}${identity.totp ? "+totp" : ""}`;
  if (isFile) return own.files.answer(request);
  // Only an admitted client learns why there is no route.
  const wanted = found ?? findRoute(own.routes, request);
  const { bucket_id, env_id } = wanted.params;
  requireAllowed(identity, wanted.route.role, bucket_id ?? env_id);
  const recorded = { route: own.recorder.recorded(wanted.route, identity), params: wanted.params };
  return whileGoingOn(identity, wanted.route.method === "GET", callRoute(recorded, request, { ...own.services, identity }));
}

/** An answer that was not over when its token or session ended is none, unless it tells of something that was done. */
async function whileGoingOn(identity: Identity, isReading: boolean, answering: Promise<Answer>): Promise<Answer> {
  try {
    const found = await answering;
    if (!isReading || !identity.ends?.aborted) return found;
    if (typeof found.body === "object" && "close" in found.body) await found.body.close();
    requireGoingOn(identity);
    return found;
  } catch (error) {
    if (error instanceof Failure && error.code === "cancelled") requireGoingOn(identity);
    throw error;
  }
}

/** The failure of a request; `bucket_not_found` where the request failed because its bucket was deleted meanwhile. */
async function explain(
  error: unknown,
  request: HttpRequest,
  { root, routes }: Pick<Offered, "routes"> & { root: string },
): Promise<unknown> {
  const isAdmitted = request.noted.authenticated !== undefined;
  const { bucket_id, env_id } = (isAdmitted && routeOf(routes, request)?.params) || {};
  const id = bucket_id ?? env_id;
  if (id === undefined || (error instanceof Failure && HTTP_STATUS[error.code] !== undefined)) return error;
  return (await exists(path.join(root, id.toLowerCase()))) ? error : bucketNotFound(id);
}

function routeOf(routes: readonly ServerRoute[], request: HttpRequest) {
  try {
    return findRoute(routes, request);
  } catch {
    return undefined;
  }
}
