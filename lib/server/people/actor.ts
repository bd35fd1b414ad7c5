import type { Identity } from "../../auth/guard.ts";
import type { Actor } from "../../run/record.ts";

/** Who made a request, as records keep it. */
export function actorOf({ name, address, via }: Identity): Actor {
  return { name, address, via };
}
