import { readFile } from "node:fs/promises";
import path from "node:path";
import { Guard } from "../auth/guard.ts";
import { Sessions } from "../auth/session.ts";
import { layoutOf } from "../bucket/layout.ts";
import { bucketIds, prepareRoot } from "../bucket/root.ts";
import { type Asset, loadAssets } from "../core/assets.ts";
import type { Launcher } from "../core/spawn.ts";
import { listen } from "../http/listen.ts";
import { type Answer, type HttpRequest, raw } from "../http/message.ts";
import { callRoute, findRoute, methodNotAllowed } from "../http/router.ts";
import { Supervisor } from "../run/supervisor.ts";
import { accessLine } from "./access.ts";
import type { ServerConfig } from "./config.ts";
import type { Services } from "./context.ts";
import { openApiDocument } from "./openapi.ts";
import { ROUTES } from "./routes/table.ts";

/** What open requests get to finish when the server stops; a bucket's creation is the longest of them. */
const CLOSE_WAIT_MS = 15_000;

/** A server that runs. */
export interface RunningServer {
  url: string;
  /**
   * Takes no new connections, answers long-polls at once, cancels active runs, waits for them within bounds and kills
   * what is left. Their runs end as `failed` with `server restarted before run completed`.
   */
  stop(): Promise<void>;
}

/**
 * Starts the control plane: makes the root, settles what an earlier server left behind, and only then listens
 * (control-plane.md, Source push 5). `log` gets the access log and what people must know; never a token.
 */
export async function startServer(
  config: ServerConfig,
  launcher: Launcher,
  log: (message: string) => void,
): Promise<RunningServer> {
  const { root, host, port, token } = config;
  const tls = config.tls && (await readTls(config.tls));
  const assets = await loadAssets();
  const supervisor = new Supervisor({ launcher, log });
  await prepareRoot(root);
  await supervisor.recover((await bucketIds(root)).map((id) => layoutOf(path.join(root, id))));
  const sessions = new Sessions({ secure: tls !== undefined });
  const services = { root, supervisor, sessions, launcher, openApi: () => openApiDocument(ROUTES) };
  const guard = new Guard({ token, sessions });
  const listener = await listen({
    ...{ host, port },
    ...(tls && { tls }),
    handle: (request) => answer(request, assets, guard, services),
    onExchange: (exchange) => log(accessLine(exchange)),
    onDefect: (id, error) => log(`request=${id} failed: ${error instanceof Error ? error.stack : error}`),
  });
  return {
    url: listener.url,
    async stop() {
      await Promise.all([listener.close(CLOSE_WAIT_MS), supervisor.stop()]);
    },
  };
}

async function readTls(files: { certFile: string; keyFile: string }): Promise<{ cert: string; key: string }> {
  return { cert: await readFile(files.certFile, "utf8"), key: await readFile(files.keyFile, "utf8") };
}

/** The order of decisions: HTTP conventions. Whatever is not a file of the sign-in page needs to be signed in. */
async function answer(
  request: HttpRequest,
  assets: ReadonlyMap<string, Asset>,
  guard: Guard,
  services: Services,
): Promise<Answer> {
  const asset = assets.get(request.path);
  if (asset && !isReference(request.path)) return fileAnswer(request, asset);
  const identity = guard.admit(request);
  if (asset) return fileAnswer(request, asset);
  return callRoute(findRoute(ROUTES, request), request, { ...services, identity });
}

/** The pages of the API reference are files too, but not public. */
function isReference(path: string): boolean {
  return path.startsWith("/docs");
}

function fileAnswer(request: HttpRequest, asset: Asset): Answer {
  if (request.method !== "GET" && request.method !== "HEAD") throw methodNotAllowed(request, ["GET", "HEAD"]);
  return raw(asset.type, asset.content, { "Cache-Control": "no-cache" });
}
