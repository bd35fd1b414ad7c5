// A small bucket with the trouble that a real one has: for the tests of the overview.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { LocalServer } from "../../scripts/local-server.ts";
import { makeKey } from "../../scripts/private-sshd.ts";

/** Three workers are local; the last one is to be reached over ssh, and is not there. */
export const FLEET = ["ams-a-001", "ams-a-002", "ams-b-003", "ams-b-004"] as const;
/** What the worker says where kafka does not restart: between the words stand marks that nobody can see. */
export const FATAL = 'FATAL could not open "/srv/\u202Ekafka": No space left on device';

/**
 * Makes the bucket demo/trouble: deployed once well, then with changes of which two fail, and one file changed by hand.
 * kafka does not restart on ams-a-002, search fails its gate on ams-b-003, ams-b-004 is unreachable; nginx is well.
 */
export async function deployTrouble(server: LocalServer, folder: string): Promise<string> {
  const bucket = await server.createBucket("trouble");
  const [source, workers] = [path.join(folder, "source"), path.join(folder, "workers")];
  const key = makeKey(folder, "key");
  await server.call("PUT", `/api/buckets/${bucket}/secrets/ssh_key`, { private_key: readFileSync(key, "utf8") });
  await deployTroubled(server, bucket, { source, workers, version: "1.0.0" });
  await deployTroubled(server, bucket, { source, workers, version: "1.1.0" });
  writeFileSync(path.join(workers, FLEET[0], bucket, "jobs", "nginx", "app.conf"), "by hand\n");
  await server.run(bucket, "drift");
  return bucket;
}

/** Pushes a version and deploys it: 1.0.0 is well, 1.1.0 fails, 1.2.0 waits in each restart of nginx for `folder`/go. */
export async function deployTroubled(
  server: LocalServer,
  bucket: string,
  { source, workers, version }: { source: string; workers: string; version: string },
): Promise<void> {
  writeSource(source, workers, version);
  const { code, stderr } = await server.push(bucket, source);
  if (code !== 0) throw new Error(stderr);
  await server.run(bucket, "deploy");
}

/** Writes the source of a version. */
export function writeSource(source: string, workers: string, version: string): void {
  const write = (file: string, content: string | object) => {
    const target = path.join(source, "workspace", file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, typeof content === "string" ? content : JSON.stringify(content));
  };
  const definition = (host: string, index: number) => ({
    host,
    connection: index === FLEET.length - 1 ? "ssh" : "local",
    root: path.join(workers, host),
    labels: ["all"],
    tags: { rack: host.split("-")[1] },
  });
  write("workers.json", FLEET.map(definition));
  const checks = [{ type: "ssh", command: "sh jobs/search/check" }];
  const gate = { on_failure: "restore", health_check: { checks, wait: { attempts: 2, interval_seconds: 0 } } };
  for (const job of ["kafka", "nginx", "search"]) {
    const manifest = { version, selectors: ["all"], max_concurrent_upgrades: 1, tolerate: { unreachable: "50%" } };
    write(`jobs/${job}/manifest.json`, {
      ...manifest,
      hooks: { check: { executed_on: ["cli"] } },
      ...(job === "search" && gate),
      ...(job === "kafka" && { resources: { ports: { kafka_tcp: 30_001 } } }),
    });
    write(`jobs/${job}/_hooks/check.py`, "print('checked')\n");
    write(`jobs/${job}/app.conf.tpl`, "{{ .Job }} {{ .NewVersion }} on {{ .WorkerIP }}\n");
    write(`jobs/${job}/Makefile.tpl`, makefile(job, workers));
  }
  const fails = `{{ if and (eq .NewVersion "1.1.0") (eq .WorkerIP "${FLEET[2]}") }}`;
  write("jobs/search/check.tpl", `${fails}echo "connect ECONNREFUSED 127.0.0.1:9200" >&2; exit 1{{ else }}exit 0{{ end }}\n`);
}

function makefile(job: string, workers: string): string {
  const broken = `\t@echo "INFO  starting"\n\t@echo '${FATAL}' >&2\n\t@echo "INFO  shutting down"\n\t@exit 1`;
  const waits = `\t@while [ ! -e ${path.join(workers, "go")} ]; do sleep 0.05; done`;
  const condition = {
    kafka: `{{ if and (eq .NewVersion "1.1.0") (eq .WorkerIP "${FLEET[1]}") }}${broken}{{ else }}\t@true{{ end }}`,
    nginx: `{{ if eq .NewVersion "1.2.0" }}${waits}{{ else }}\t@true{{ end }}`,
  }[job];
  return `start restart reload:\n\t@mkdir -p data\n${condition ?? "\t@true"}\nstop:\n\t@true\nstatus:\n\t@echo running\n`;
}
