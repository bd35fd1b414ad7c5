import path from "node:path";
import { EARLIER_COOKIE } from "../../auth/session.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { type Asset, readConsole, readPages } from "../console-files.ts";
import { OneRunSupervisor } from "./one-run.ts";
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
