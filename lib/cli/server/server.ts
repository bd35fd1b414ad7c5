import { once } from "node:events";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { LOG_FORMATS, type Log, logLine } from "../../server/access.ts";
import { startServer } from "../../server/app.ts";
import { serverConfig, tokenWarning } from "../../server/config.ts";
import { EXIT, type Parsed } from "../base/flags.ts";
import { stopRequest } from "../base/stop.ts";

/** How long a line of the log may wait for others, in milliseconds, and how many letters may wait. */
const LOG_MS = 10;
const LOG_LETTERS = 4 * 1024;

/**
 * `ops server`: serves until it is told to stop, then ends its runs and exits (control-plane.md). With TLS, HUP makes it
 * read the certificate again.
 */
export async function serverCommand(input: Parsed): Promise<number> {
  const value = (name: string) => input.values.get(name);
  const log = logIn(value("log-format") ?? "text");
  const config = await serverConfig(
    {
      root: value("root"),
      token: value("token"),
      tokenFile: value("token-file"),
      addr: value("addr"),
      tlsCert: value("tls-cert"),
      tlsKey: value("tls-key"),
      totpSecretFile: value("totp-secret-file"),
      totpSessionTtl: value("totp-session-ttl"),
      totpIssuer: value("totp-issuer"),
    },
    process.env,
  );
  const warning = tokenWarning(config);
  if (warning !== undefined) log(warning);
  let reloadTls = async () => {};
  let reloaded = Promise.resolve();
  const onHangUp = () => {
    reloaded = reloaded.then(() => reloadTls());
  };
  using stop = stopRequest(config.tls && onHangUp);
  // The configuration took the secrets out of the environment: no child can inherit them.
  const server = await startServer(config, new Launcher(process.env), log);
  reloadTls = server.reloadTls;
  process.stdout.write(`listening on ${server.url}\n`);
  if (!stop.signal.aborted) await once(stop.signal, "abort");
  log("stopping: active runs are cancelled and waited for; a second signal does not wait");
  const stopped = server.stop().then(() => "stopped" as const);
  if ((await Promise.race([stopped, stop.insisted])) === "stopped") return EXIT.done;
  log("not waiting: processes of runs notice that the server is gone and end by themselves");
  process.exit(EXIT.cancelled);
}

function logIn(name: string): Log {
  const format = LOG_FORMATS.find((one) => one === name);
  if (!format) throw new Failure("usage", `--log-format: expected ${LOG_FORMATS.join(" or ")}, found ${quote(name)}`);
  // Lines of one moment are written together: a write for each would cost as much as the requests they tell of. But
  // not too many of them: requests wait meanwhile.
  let lines = "";
  let isTimed = false;
  const write = () => {
    if (lines !== "") process.stderr.write(lines);
    lines = "";
  };
  const later = () => {
    isTimed = false;
    write();
  };
  process.on("exit", write);
  return (message, facts) => {
    if (!isTimed) setTimeout(later, LOG_MS);
    isTimed = true;
    lines += logLine(format, message, facts);
    if (lines.length >= LOG_LETTERS) write();
  };
}
