import type { Launcher } from "../core/spawn.ts";
import { localTransport } from "./base/local.ts";
import type { Transport, WorkerAddress } from "./base/transport.ts";
import type { SshConnections } from "./ssh/ssh.ts";

/** The way to a worker that its `connection` names; `ssh` is asked for only where it is needed. */
export async function openTransport(
  worker: WorkerAddress,
  bucketId: string,
  launcher: Launcher,
  ssh: () => Promise<SshConnections>,
): Promise<Transport> {
  if (worker.connection === "local") return localTransport(worker, bucketId, launcher);
  return (await ssh()).transport(worker, bucketId);
}
