import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** The workers of {@link writeServices}: two addresses of this machine, each with a root of its own. */
export const WORKERS = ["127.0.0.1", "127.0.0.2"];

/** Changes to the small bucket of {@link writeServices}. */
export interface ServiceOptions {
  version: string;
  /** More lines of base's Makefile targets `start` and `restart`, before the service is marked as running. */
  before?: string;
  healthPort?: number;
  manifest?: Record<string, unknown>;
  /** The content of base's template. */
  template?: string;
  /** More fields of both workers in workers.json. */
  worker?: Record<string, unknown>;
}

/**
 * Writes a bucket with two jobs on two workers, which are local unless `worker` says otherwise; `app` demands `base`. A "service" is a file: the target `start`
 * copies the rendered configuration to data/running, so that what runs can be compared with what was deployed.
 */
export function writeServices(folder: string, workersRoot: string, options: ServiceOptions): void {
  const write = (file: string, content: string | object) => {
    const target = path.join(folder, "workspace", file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, typeof content === "string" ? content : JSON.stringify(content));
  };
  write(
    "workers.json",
    WORKERS.map((host) => ({
      host,
      connection: "local",
      root: path.join(workersRoot, host),
      labels: ["all"],
      ...options.worker,
    })),
  );
  const hook = { executed_on: ["cli"] };
  for (const job of ["base", "app"]) {
    const demands = job === "app" ? { demands: { job: "base", hook: "check" } } : {};
    const health = options.healthPort === undefined || job === "app" ? {} : healthCheck(options.healthPort);
    write(`jobs/${job}/manifest.json`, {
      version: options.version,
      selectors: ["all"],
      hooks: { check: { ...hook, ...demands } },
      ...health,
      ...(job === "base" && options.manifest),
    });
    write(`jobs/${job}/Makefile`, makefile(job === "base" ? (options.before ?? "") : ""));
    write(`jobs/${job}/_hooks/check.py`, "print('checked')\n");
    const template = "{{ .Job }} {{ .NewVersion }} on {{ .WorkerIP }}\n";
    write(`jobs/${job}/app.conf.tpl`, (job === "base" && options.template) || template);
    write(`jobs/${job}/static/page.txt`, `page of ${options.version}\n`);
  }
}

function healthCheck(port: number) {
  return {
    resources: { ports: { base_tcp: port } },
    health_check: { checks: [{ type: "tcp", port: "base_tcp" }], wait: { attempts: 2, interval_seconds: 0 } },
  };
}

function makefile(before: string): string {
  return `start restart:
${before}	@sleep 0.03
	@mkdir -p data
	@cp app.conf data/running
	@echo "$@ $$NEW_VERSION" >> data/history
stop:
	@rm -f data/running
	@echo stop >> data/history
status:
	@test -f data/running
`;
}

/** What a job's "service" on a worker runs with, or undefined when it does not run. */
export function runningConfiguration(workersRoot: string, host: string, bucket: string, job: string): string | undefined {
  return readOptional(path.join(workersRoot, host, bucket, "jobs", job, "data", "running"));
}

/** The targets that changed a job's "service" on a worker, oldest first. */
export function serviceHistory(workersRoot: string, host: string, bucket: string, job: string): string[] {
  const text = readOptional(path.join(workersRoot, host, bucket, "jobs", job, "data", "history")) ?? "";
  return text.split("\n").filter((line) => line !== "");
}

function readOptional(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
