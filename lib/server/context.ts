import type { Identity } from "../auth/guard.ts";
import type { Sessions } from "../auth/session.ts";
import type { TotpCodes } from "../auth/totp.ts";
import type { Launcher } from "../core/spawn.ts";
import type { QueryFields, Route } from "../http/router.ts";
import type { Supervisor } from "../run/supervisor.ts";
import type { Readers } from "./reading.ts";
import type { RunList } from "./run-list.ts";

/** What the handlers of the control plane work with. */
export interface Services {
  /** The folder of the buckets. */
  root: string;
  supervisor: Supervisor;
  sessions: Sessions;
  totpSessions: Sessions;
  /** Undefined where TOTP is off. */
  totp: TotpCodes | undefined;
  launcher: Launcher;
  readers: Readers;
  runList: RunList;
  /** The description of the API. */
  openApi: () => object;
}

/** The services, and who is asking. */
export interface Context extends Services {
  identity: Identity;
}

/** An entry of the server's route table. */
export type ServerRoute = Route<Context>;

/** Lets the types of a route's query and body follow from its shapes. */
export function route<Q extends QueryFields, B>(definition: Route<Context, Q, B>): ServerRoute {
  return definition as unknown as ServerRoute;
}
