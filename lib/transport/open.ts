import { Failure } from "../core/errors.ts";
import type { Launcher } from "../core/spawn.ts";
import { localTransport } from "./local.ts";
import type { Transport, WorkerAddress } from "./transport.ts";

/** The way to a worker that its `connection` names. Throws `failed` where it cannot be reached. */
export async function openTransport(
  worker: WorkerAddress,
  bucketId: string,
  launcher: Launcher,
): Promise<Transport> {
  if (worker.connection === "local") return localTransport(worker, bucketId, launcher);
  throw new Failure(
    "failed",
    `Cannot reach worker ${worker.host}: this version reaches only workers with "connection": "local" in workers.json`,
  );
}
