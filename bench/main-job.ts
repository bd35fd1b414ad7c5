import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { BenchBucket } from "./bucket.ts";
import type { Contenders, Cost, Reach } from "./contenders.ts";

const FILES = 20;
const TEMPLATES = 3;
const FILE_BYTES = 8 * 1024;
const BATCH = 10;
/** How long the service is not ready after a start. */
const STARTING_MS = 300;

/** What a worker's service is told to do: the file by which it counts as started is one of the templates. */
const MAKEFILE = 'start restart:\n\t@read -r at <stamp && date >"$$at"\nstop:\n\t@true\n';

/**
 * The job that most deploys look like: 20 files, three of them templates, to 50 workers in batches of 10, each batch
 * behind a gate over HTTP. The services of all workers are one server of this process, which takes 0.3 s to be ready.
 */
export class MainJob {
  readonly #folder: string;
  readonly #reach: Reach;
  readonly #server: Server;
  readonly #port: number;
  #bucket: BenchBucket | undefined;
  #round = 0;

  private constructor(folder: string, reach: Reach, server: Server) {
    this.#folder = folder;
    this.#reach = reach;
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
    for (const name of ["stamps", "source", "trees", "plays"]) mkdirSync(path.join(folder, name), { recursive: true });
  }

  static async make(folder: string, reach: Reach): Promise<MainJob> {
    const server = createServer((request, response) => {
      response.statusCode = job.#isReady(request.socket.localAddress ?? "") ? 200 : 503;
      response.end("service\n");
    }).listen(0, "0.0.0.0");
    await once(server, "listening");
    const job = new MainJob(folder, reach, server);
    const bucket = await BenchBucket.make(path.join(folder, "bucket"), reach, path.join(folder, "roots"));
    job.#bucket = bucket;
    const manifest = {
      version: "1.0.0",
      selectors: ["web"],
      max_concurrent_starts: BATCH,
      max_concurrent_upgrades: BATCH,
      resources: { ports: { web_http: job.#port } },
      health_check: { checks: [{ type: "http", port: "web_http" }] },
    };
    bucket.write("workspace/jobs/web/manifest.json", JSON.stringify(manifest));
    bucket.write("workspace/jobs/web/stamp.tpl", `${folder}/stamps/{{ .WorkerIP }}\n`);
    job.#put("Makefile", MAKEFILE);
    for (let number = 1; number < FILES - TEMPLATES; number++) job.#put(`file${number}`, randomBytes(FILE_BYTES));
    job.change();
    return job;
  }

  /** Changes one template, and with it a file of every worker. */
  change(): void {
    this.#round++;
    const text = (host: string) => `listen = ${host}\nround = ${this.#round}\n`;
    for (const name of ["web.conf", "extra.conf"]) {
      if (name === "extra.conf" && this.#round > 1) continue;
      this.#bucket?.write(`workspace/jobs/web/${name}.tpl`, text("{{ .WorkerIP }}"));
      writeFileSync(path.join(this.#folder, "source", `${name}.j2`), text("{{ inventory_hostname }}"));
      for (const host of this.#reach.hosts) writeFileSync(path.join(this.#tree(host), name), text(host));
    }
    this.#bucket?.run("build");
  }

  /** `ops deploy`, after the build. */
  async deploy(): Promise<Cost> {
    return (this.#bucket as BenchBucket).measured("deploy");
  }

  /** rsync, ssh and curl, in the same batches, with the templates rendered before. */
  async script(contenders: Contenders): Promise<Cost> {
    return contenders.deployScript({ trees: path.join(this.#folder, "trees"), port: this.#port, batch: BATCH });
  }

  /** A playbook that does the same. */
  async playbook(contenders: Contenders, strategy: "linear" | "mitogen_linear"): Promise<Cost> {
    const target = `${this.#folder}/plays/{{ inventory_hostname }}`;
    const source = `${this.#folder}/source`;
    const tasks = [
      { file: { path: target, state: "directory" } },
      { copy: { src: `${source}/files/`, dest: `${target}/`, mode: "preserve" } },
      { template: { src: `${source}/{{ item }}.j2`, dest: `${target}/{{ item }}` }, loop: ["stamp", "web.conf", "extra.conf"] },
      { command: { argv: ["make", "-s", "-C", target, "restart"] } },
      {
        uri: { url: `http://{{ inventory_hostname }}:${this.#port}/` },
        delegate_to: "localhost",
        register: "answer",
        until: "answer.status == 200",
        retries: 30,
        delay: 1,
      },
    ];
    const play = [{ hosts: "all", gather_facts: false, serial: BATCH, strategy, tasks }];
    // YAML is a superset of JSON.
    const file = path.join(this.#folder, "play.yml");
    writeFileSync(file, JSON.stringify(play));
    writeFileSync(path.join(source, "stamp.j2"), `${this.#folder}/stamps/{{ inventory_hostname }}\n`);
    return contenders.ansiblePlaybook(file, strategy);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  /** A static file, for all ways alike. */
  #put(name: string, content: string | Uint8Array): void {
    this.#bucket?.write(`workspace/jobs/web/${name}`, content);
    const files = path.join(this.#folder, "source/files");
    mkdirSync(files, { recursive: true });
    writeFileSync(path.join(files, name), content);
    for (const host of this.#reach.hosts) cpSync(path.join(files, name), path.join(this.#tree(host), name));
  }

  #tree(host: string): string {
    const folder = path.join(this.#folder, "trees", host);
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, "stamp"), `${this.#folder}/stamps/${host}\n`);
    return folder;
  }

  #isReady(host: string): boolean {
    const started = statSync(path.join(this.#folder, "stamps", host), { throwIfNoEntry: false });
    return started !== undefined && Date.now() - started.mtimeMs >= STARTING_MS;
  }
}
