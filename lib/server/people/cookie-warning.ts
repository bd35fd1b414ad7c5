import { networkInterfaces } from "node:os";
import path from "node:path";
import { layoutOf } from "../../bucket/base/layout.ts";
import { catalogWorkers } from "../../bucket/catalog/catalog.ts";

/**
 * The warning that services of a bucket run on the server's own machine; undefined where none do. A browser sends a cookie
 * to every port of the host name that it came from, so such a service gets the session of whoever opens it under the name
 * or address that the console has, too (docs/security.md, What is not).
 */
export async function cookieWarning(root: string, buckets: readonly string[]): Promise<string | undefined> {
  const { openForReading } = await import("../../bucket/base/database.ts");
  const own = new Set(Object.values(networkInterfaces()).flatMap((found) => (found ?? []).map(({ address }) => address)));
  for (const id of buckets) {
    const worker = builtWorkers(openForReading, layoutOf(path.join(root, id)).database).find(
      ({ host, connection }) => connection === "local" || own.has(host) || host === "localhost",
    );
    if (worker)
      return (
        `warning: services of worker ${worker.host} in bucket ${id} run on this machine, and a browser sends the session of the ` +
        "console to every port of its host name: open the console under a name of its own, such as ops.localhost or ops.<domain>"
      );
  }
  return undefined;
}

/** The workers of a bucket; none where its database cannot be read, which is told elsewhere. */
function builtWorkers(openForReading: typeof import("../../bucket/base/database.ts").openForReading, file: string) {
  try {
    using db = openForReading(file);
    return catalogWorkers(db);
  } catch {
    return [];
  }
}
