import { fstatSync } from "node:fs";
import { Socket } from "node:net";
import { Launcher } from "../../core/spawn.ts";
import { keepConnections } from "../../transport/ssh/keeper.ts";
import { EXIT } from "../base/flags.ts";

/** The descriptor of the channel to the run that has started this process. */
const FIRST_RUN = 3;

/** The process that keeps the connections of a bucket between runs. */
export async function keep(): Promise<never> {
  if (!isSocket(FIRST_RUN)) {
    process.stderr.write("ops: `ops keep` is started by runs, with a channel to them\n");
    process.exit(EXIT.usage);
  }
  const stop = new AbortController();
  process.on("SIGTERM", () => stop.abort());
  await keepConnections(new Socket({ fd: FIRST_RUN }), new Launcher(process.env), stop.signal);
  process.exit(0);
}

function isSocket(descriptor: number): boolean {
  try {
    return fstatSync(descriptor).isSocket();
  } catch {
    return false;
  }
}
