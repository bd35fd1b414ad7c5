import { once } from "node:events";
import { Launcher } from "../core/spawn.ts";
import { startServer } from "../server/app.ts";
import { serverConfig } from "../server/config.ts";
import { EXIT, type Parsed } from "./flags.ts";
import { stopRequest } from "./stop.ts";

/** `ops server`: serves until it is told to stop, then ends its runs and exits (control-plane.md). */
export async function serverCommand(input: Parsed): Promise<number> {
  const value = (name: string) => input.values.get(name);
  const config = await serverConfig(
    {
      root: value("root"),
      token: value("token"),
      tokenFile: value("token-file"),
      addr: value("addr"),
      tlsCert: value("tls-cert"),
      tlsKey: value("tls-key"),
    },
    process.env,
  );
  const log = (message: string) => process.stderr.write(`${new Date().toISOString()} ${message}\n`);
  using stop = stopRequest();
  // The configuration took the secrets out of the environment: no child can inherit them.
  const server = await startServer(config, new Launcher(process.env), log);
  process.stdout.write(`listening on ${server.url}\n`);
  if (!stop.signal.aborted) await once(stop.signal, "abort");
  log("stopping: active runs are cancelled and waited for; a second signal does not wait");
  const stopped = server.stop().then(() => "stopped" as const);
  if ((await Promise.race([stopped, stop.insisted])) === "stopped") return EXIT.done;
  log("not waiting: processes of runs notice that the server is gone and end by themselves");
  process.exit(EXIT.cancelled);
}
