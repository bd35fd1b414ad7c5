import { mkdirSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { runHookCommand } from "../../lib/operation/hooks/hook-script.ts";
import { localTransport } from "../../lib/transport/base/local.ts";
import type { Transport } from "../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../lib/transport/ssh/openssh.ts";
import { testRuntime } from "./hook-runtime.ts";
import { environmentOf, HookScripts } from "./hook-scripts.ts";
import { BUCKET_ID, type FleetOptions, SshFleet } from "./ssh-fleet.ts";
import { until } from "./temporary.ts";
import { processesIn } from "./worker.ts";

/** How a worker can be reached. */
export const WAYS = ["ssh", "local"] as const;
/** The worker of the scripts. */
export const HOST = "127.0.0.2";

/** How a place differs from the usual one. */
interface PlaceOptions {
  fleet?: FleetOptions;
  settings?: Partial<SshSettings>;
  /** The most bytes of each output. */
  outputLimit?: number;
  /** The bucket has no folder on the worker yet. */
  isNew?: boolean;
}

/** A worker, the API of a session, and scripts that run commands there as hooks do. */
export class CommandPlace {
  readonly fleet: SshFleet;
  /** The bucket's folder on the worker. */
  readonly folder: string;
  readonly env: Record<string, string>;
  readonly scripts: HookScripts;

  private constructor(t: TestContext, fleet: SshFleet, env: Record<string, string>) {
    this.fleet = fleet;
    this.folder = path.join(fleet.worker(HOST).root, BUCKET_ID);
    this.env = env;
    this.scripts = new HookScripts(t);
  }

  static async make(t: TestContext, way: (typeof WAYS)[number], options: PlaceOptions = {}) {
    const fleet = await SshFleet.start(t, options.fleet);
    const { transports } = await fleet.connect(t, options.settings);
    const worker = fleet.worker(HOST, { connection: way });
    const transport = way === "ssh" ? (transports[1] as Transport) : localTransport(worker, BUCKET_ID, fleet.launcher);
    const host = {
      context: {
        run: { id: "r1" },
        progress: { during: (_on: string, _ms: number, work: (begun: () => void) => unknown) => work(() => {}) },
      },
      fleet: { workers: [worker], openUnmasked: async () => transport },
      outputLimit: options.outputLimit ?? 2 ** 26,
    } as unknown as Parameters<typeof runHookCommand>[0];
    const { runtime, script } = await testRuntime(t, {
      allocation: () => ({}),
      command: (...order) => runHookCommand(host, ...order),
    });
    const about = { job: "web", worker: HOST, event: "pre_deploy", hook: "act" } as const;
    const place = new CommandPlace(t, fleet, environmentOf(runtime, { ...about, allocationId: script(about).id }));
    if (!options.isNew) mkdirSync(place.folder, { recursive: true });
    return place;
  }

  /** Runs a script that succeeds; answers what it printed as JSON. */
  answer(text: string): Promise<unknown> {
    return this.scripts.answer("py", text, this.env);
  }

  get processes(): number[] {
    return processesIn(this.folder);
  }

  async isEmpty(): Promise<void> {
    await until("nothing of the command is left on the worker", () => this.processes.length === 0);
  }
}
