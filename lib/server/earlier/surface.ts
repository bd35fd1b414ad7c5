import path from "node:path";
import { EARLIER_COOKIE } from "../../auth/session.ts";
import { Failure } from "../../core/errors.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { Supervisor } from "../../run/supervisor.ts";
import { type Asset, readConsole, readPages } from "../console-files.ts";
import { EARLIER_ROUTES } from "./table.ts";

/** The page to sign in. */
const SIGN_IN_PAGE = path.join(PROGRAM_ROOT, "lib", "server", "earlier", "page");

/** What the earlier variant has in place of the present server (control-plane.md, Earlier variant). */
export async function earlierSurface() {
  return {
    labels: "env.json",
    cookie: EARLIER_COOKIE,
    routes: EARLIER_ROUTES,
    files: await earlierFiles(),
    supervisor: OneRunSupervisor,
  } as const;
}

/** The page to sign in, and of the console the API reference with what that loads. */
async function earlierFiles(): Promise<ReadonlyMap<string, Asset>> {
  const reference = [...(await readConsole())].filter(([name]) => /^\/(?:docs(?:\/|$)|.+\.)/.test(name));
  return new Map([...reference, ...(await readPages(SIGN_IN_PAGE))]);
}

/** The run that holds all buckets; without an id until its bucket is taken. */
interface Holder {
  bucketId: string;
  runId?: string;
  /** From then on the supervisor knows when it is over. */
  started: boolean;
}

/** A supervisor with at most one run at a time in all buckets together (control-plane.md, Earlier variant 4). */
export class OneRunSupervisor extends Supervisor {
  #holder: Holder | undefined;

  /** Throws `busy` while a run is active in any bucket, else like the supervisor. */
  override async reserve(...[layout, bucketId, kind]: Parameters<Supervisor["reserve"]>): ReturnType<Supervisor["reserve"]> {
    if (this.#holder && (!this.#holder.started || this.activeRun(this.#holder.bucketId) !== null)) throw busy(this.#holder);
    const holder: Holder = { bucketId, started: false };
    this.#holder = holder;
    const giveUp = () => {
      this.#holder = undefined;
    };
    try {
      const { runId, start, release } = await super.reserve(layout, bucketId, kind);
      holder.runId = runId;
      return {
        runId,
        async start(params, by) {
          await start(params, by);
          holder.started = true;
        },
        async release() {
          giveUp();
          await release();
        },
      };
    } catch (error) {
      giveUp();
      throw error;
    }
  }
}

function busy({ bucketId, runId }: Holder): Failure {
  const what = runId === undefined ? "a start" : `run ${runId}`;
  const message = `busy with ${what} of environment ${bucketId}: there is one run at a time in all environments`;
  return new Failure("busy", message, { details: { env_id: bucketId, ...(runId !== undefined && { run_id: runId }) } });
}
