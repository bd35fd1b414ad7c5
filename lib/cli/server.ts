import { Failure, messageOf } from "../core/errors.ts";
import { Launcher } from "../core/spawn.ts";
import { startServer } from "../server/app.ts";
import { serverConfig } from "../server/config.ts";
import type { Parsed } from "./flags.ts";
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
  const stop = stopRequest();
  // The configuration took the secrets out of the environment: no child can inherit them.
  const server = await startServer(config, new Launcher(process.env), log);
  process.stdout.write(`listening on ${server.url}\n`);
  await new Promise<void>((resolve) =>
    stop.signal.addEventListener("abort", () => resolve(), { once: true }),
  );
  log("stopping: active runs are cancelled");
  try {
    await Promise.race([server.stop(), stop.insisted]);
  } catch (error) {
    throw new Failure("failed", `Cannot stop cleanly: ${messageOf(error)}`, { cause: error });
  }
  return 0;
}
