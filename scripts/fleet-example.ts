// A bucket of 30 jobs on 40 workers of this machine, with the trouble that a real one has: for the screenshots and for the
// tests of the console.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { openDatabase } from "../lib/bucket/base/database.ts";
import { beginChange, promote, recordSynced } from "../lib/bucket/catalog/promotions.ts";
import type { LocalServer } from "./local-server.ts";

/** Jobs by wave: those of a wave demand the first job of the wave before. */
const WAVES = [
  ["consul", "etcd", "vault", "zookeeper"],
  [
    ...["clickhouse", "kafka", "elastic", "gitea", "grafana", "haproxy", "keycloak", "loki", "mail-relay", "mimir", "minio"],
    ...["nats", "nginx", "ntp", "postgres", "rabbitmq", "registry", "tempo"],
  ],
  ["search-api", "alertmanager", "backup-agent", "billing-api", "dns-recursor", "node-agent", "prometheus"],
  ["orders-api"],
];
/** Where it goes wrong in the second state. */
const TROUBLE = { restart: "ams-b-007", gate: ["ams-a-012", "ams-c-011"], unreachable: "ams-c-020", disabled: "ams-c-038" };

/** Versions before and after; all other jobs stay as they are. */
const VERSIONS: Record<string, readonly [string, string]> = {
  ...{ kafka: ["3.8.0", "3.8.1"], nginx: ["1.27.1", "1.27.2"] },
  ...{ "search-api": ["2.13.1", "2.14.0"], "orders-api": ["5.2.0", "5.2.1"] },
};

// make runs it without a shell, since it is one plain command: that counts on 1,200 allocations.
const START = "\t@echo $(notdir $(CURDIR)): configuration test is successful";
const BROKEN_START = `	@for step in "Terminating process due to signal SIGTERM" "Starting controlled shutdown" "Shutdown completed"; do echo "INFO  $$step"; done
	@echo "bin/kafka-storage.sh check: 3.8.1"
	@echo "start: kafka.service"
	@echo "OpenJDK 64-Bit Server VM warning: -Xmx4g exceeds cgroup soft limit" >&2
	@for step in "Heap 4.0 GB, G1, 8 threads" "Registered signal handlers for TERM, INT, HUP" "Cluster ID = 9s0PqSgNQ3ixZ8Wl0A"; do echo "INFO  $$step"; done
	@echo "WARN  /srv/kafka/data: 0 bytes free" >&2
	@echo 'FATAL could not open data directory "/srv/kafka/data": No space left on device' >&2
	@echo "INFO  shutting down (kafka.server.KafkaServer)"
	@echo "kafka.service: main process exited, code=exited, status=1"
	@exit 1`;

/** The names of the workers: three racks, every third number each. */
export const FLEET: readonly string[] = Array.from({ length: 40 }, (_, index) => {
  const number = String(index + 1).padStart(3, "0");
  return `ams-${"bca"[index % 3]}-${number}`;
});

/** The source as it was first, when all is well; with new versions of which some fail; and with these once they are mended. */
export type FleetState = "well" | "failing" | "mended";

/** While this file is there, nginx waits in its start. */
export function holdOf(workers: string): string {
  return path.join(workers, "hold");
}

/** Writes the source in a state. */
export function writeFleet(folder: string, workers: string, state: FleetState): void {
  const write = (file: string, content: string | object) => {
    const target = path.join(folder, "workspace", file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, typeof content === "string" ? content : `${JSON.stringify(content, null, 2)}\n`);
  };
  const isFailing = state === "failing";
  const definition = (host: string) => {
    const rack = host.split("-")[1] as string;
    const isGone = isFailing && host === TROUBLE.unreachable;
    const [connection, more] = isGone ? ["ssh", { ssh_port: 9 }] : ["local", {}];
    const tags = { rack, zone: `ams-${rack}` };
    return { host, connection, root: path.join(workers, host), labels: ["all", `rack-${rack}`], tags, ...more };
  };
  write("workers.json", FLEET.map(definition));
  write("disabled.json", { workers: [TROUBLE.disabled], jobs: {} });
  for (const [wave, jobs] of WAVES.entries())
    for (const job of jobs) writeJob(write, { job, demands: WAVES[wave - 1]?.[0], state, hold: holdOf(workers) });
}

function writeJob(
  write: (file: string, content: string | object) => void,
  { job, demands, state, hold }: { job: string; demands: string | undefined; state: FleetState; hold: string },
): void {
  const demand = demands === undefined ? {} : { demands: { job: demands, hook: "check" } };
  const version = VERSIONS[job] ?? ["1.4.0", "1.4.0"];
  const certificate = { subject: { common_name: job } };
  const gate = { checks: [{ type: "ssh", command: "sh jobs/search-api/check" }], wait: { attempts: 3, interval_seconds: 1 } };
  write(`jobs/${job}/manifest.json`, {
    version: version[state === "well" ? 0 : 1],
    selectors: ["all"],
    max_concurrent_upgrades: { kafka: 4, "search-api": 2, nginx: 5 }[job] ?? 20,
    tolerate: { unreachable: "10%" },
    hooks: { check: { executed_on: ["cli"], ...demand } },
    ...(["haproxy", "mail-relay"].includes(job) && {
      certs: { [job === "haproxy" ? "edge" : "smtp"]: { one: true, ...certificate } },
    }),
    ...(job === "search-api" && { on_failure: "restore", health_check: gate }),
  });
  write(`jobs/${job}/_hooks/check.py`, "print('checked')\n");
  write(`jobs/${job}/app.conf.tpl`, `job {{ .Job }}\nversion {{ .NewVersion }}\nworker {{ .WorkerIP }}\nworkers 4\n`);
  const isKafka = job === "kafka" && state === "failing";
  const usual = job === "nginx" ? `\t@while [ -e ${hold} ]; do sleep 0.1; done\n${START}` : START;
  const start = isKafka ? `{{ if eq .WorkerIP "${TROUBLE.restart}" }}${BROKEN_START}{{ else }}${START}{{ end }}` : usual;
  write(`jobs/${job}/Makefile.tpl`, `start restart reload:\n${start}\nstop:\n\t@echo stopped\nstatus:\n\t@echo running\n`);
  if (job !== "search-api") return;
  const both = TROUBLE.gate.map((worker) => `(eq .WorkerIP "${worker}")`).join(" ");
  const refused = `{{ if or ${both} }}echo "connect ECONNREFUSED 127.0.0.1:9200" >&2; exit 1{{ else }}exit 0{{ end }}\n`;
  write(`jobs/${job}/check.tpl`, state === "failing" ? refused : "exit 0\n");
}

/** The bucket on a server, and its folders on this machine. */
export interface Fleet {
  bucket: string;
  source: string;
  workers: string;
}

/** Makes the bucket platform/production on a server and deploys it well. */
export async function deployFleet(server: LocalServer, folder: string): Promise<Fleet> {
  const fleet = await buildFleet(server, folder);
  await server.run(fleet.bucket, "deploy");
  return fleet;
}

/** Makes the bucket platform/production on a server, and builds it. */
async function buildFleet(server: LocalServer, folder: string): Promise<Fleet> {
  const { body } = await server.call<{ id: string }>("POST", "/api/buckets", { project: "platform", name: "production" });
  const fleet = { bucket: body.id, source: path.join(folder, "source"), workers: path.join(folder, "workers") };
  // One worker is reached over ssh later on, and is not there.
  const key = path.join(folder, "key");
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
  await server.call("PUT", `/api/buckets/${body.id}/secrets/ssh_key`, { private_key: readFileSync(key, "utf8") });
  await pushFleet(server, fleet, "well");
  return fleet;
}

/** An allocation as the database has it. */
interface Placed {
  id: string;
  job: string;
  version: string;
}

/** Writes into a database that all allocations are deployed, but those of some jobs. Answers these allocations. */
export function markPromoted(database: string, except: readonly string[] = []): Placed[] {
  using db = openDatabase(database);
  const all = db.all<Placed>("SELECT alloc_id AS id, job, new_version AS version FROM allocations WHERE disabled = 0");
  const rows = all.filter(({ job }) => !except.includes(job));
  for (const [job, own] of Map.groupBy(rows, (row) => row.job)) {
    const ids = own.map(({ id }) => id);
    const synced = ids.map((id) => ({ id, hash: "h", files: {}, updateSeq: 1 }));
    beginChange(db, job, ids);
    recordSynced(db, job, synced);
    db.transaction(() => {
      for (const { id, version } of own) promote(db, { job, id }, version);
    });
  }
  return rows;
}

/** Pushes a state of the source. */
export async function pushFleet(server: LocalServer, { bucket, source, workers }: Fleet, state: FleetState): Promise<void> {
  writeFleet(source, workers, state);
  const { code, stderr } = await server.push(bucket, source);
  if (code !== 0) throw new Error(stderr);
}

/** Changes a file on a worker by hand, which a look for drift then finds. */
export async function driftFleet(server: LocalServer, { bucket, workers }: Fleet): Promise<void> {
  writeFileSync(path.join(workers, "ams-c-014", bucket, "jobs", "nginx", "app.conf"), "changed by hand\n");
  await server.run(bucket, "drift");
}
