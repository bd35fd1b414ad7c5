import { once } from "node:events";
import { flushCompileCache } from "node:module";
import { messageOf } from "../../core/errors.ts";
import { Launcher } from "../../core/spawn.ts";
import { type Log, type LogFormat, logLine } from "../../server/access.ts";
import { startServer } from "../../server/app.ts";
import { serverConfig, tokenWarning, totpWarning } from "../../server/config.ts";
import { EXIT, type Parsed, withoutServerVariables } from "../base/flags.ts";
import { stopRequest } from "../base/terminal.ts";

/** The longest wait for systemd-notify. */
const NOTIFY_MS = 10_000;

/**
 * `ops server`, and `ops serve` where it is the earlier variant: serves until a signal, then ends its runs and exits
 * (control-plane.md). With TLS, HUP makes the server read its certificate and its token again.
 */
export async function serverCommand(input: Parsed, earlier = false): Promise<number> {
  const { "log-format": logFormat = "text", ...flags } = Object.fromEntries(input.values);
  const log: Log = (message, facts) => process.stderr.write(logLine(logFormat as LogFormat, message, facts));
  // systemd's socket for readiness. It leaves the environment, so that hooks do not inherit it.
  const { NOTIFY_SOCKET } = process.env;
  delete process.env.NOTIFY_SOCKET;
  const config = await serverConfig(flags, process.env, earlier);
  for (const warning of [tokenWarning(config), totpWarning(config)]) if (warning !== undefined) log(warning);
  let reload = async () => {};
  let reloaded = Promise.resolve();
  const onHangUp = () => {
    reloaded = reloaded.then(() => reload());
  };
  using stop = stopRequest(config.tls && onHangUp);
  // No child process inherits the variables of a server or of its clients.
  const launcher = new Launcher(withoutServerVariables(process.env));
  const server = await startServer(config, launcher, log);
  reload = server.reload;
  process.stdout.write(`listening on ${server.url}\n`);
  // Node keeps what it has compiled when a process ends, and a server that is killed would compile it at each start.
  flushCompileCache();
  if (NOTIFY_SOCKET !== undefined) await tellReady(launcher, NOTIFY_SOCKET, log);
  if (!stop.signal.aborted) await once(stop.signal, "abort");
  log("stopping: active runs are cancelled and waited for; a second signal does not wait");
  const stopped = server.stop().then(() => "stopped" as const);
  if ((await Promise.race([stopped, stop.insisted])) === "stopped") return EXIT.done;
  log("not waiting: processes of runs notice that the server is gone and end by themselves");
  process.exit(EXIT.cancelled);
}

/** Tells systemd that the server listens. Where that fails, the server goes on, and the log says so. */
async function tellReady(launcher: Launcher, socket: string, log: Log): Promise<void> {
  const options = { env: { NOTIFY_SOCKET: socket }, timeoutMs: NOTIFY_MS };
  try {
    const { reason, exitCode, stderr } = await launcher.run(["systemd-notify", "--ready"], options);
    if (exitCode !== 0) throw new Error(stderr.trim() || `systemd-notify ended with ${exitCode ?? reason}`);
  } catch (error) {
    log(`warning: Cannot tell systemd that the server is ready: ${messageOf(error)}; systemd may take the start for failed`);
  }
}
