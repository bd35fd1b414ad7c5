import { ASPECTS } from "../../bucket/health/health-history.ts";
import { anything, described, integer, object, oneOf, type Shape, string } from "../../core/shape.ts";
import { TIME } from "../../run/progress.ts";

const HEALTH_STATES = [...new Set(Object.values(ASPECTS).flat())];
const CHANGE = {
  at: described(TIME, "When it was found so first"),
  job: described(string(), "Empty for a worker"),
  worker: string(),
  aspect: described(
    oneOf(...(Object.keys(ASPECTS) as [keyof typeof ASPECTS])),
    "health and files of an allocation, reach and load of a worker",
  ),
  state: oneOf(...HEALTH_STATES),
  reason: described(string(), "Why, where the state is no good one, masked"),
  run_id: described(string(), "The run that found it so first; it may have been removed since"),
};

/** A change of the health of an allocation or a worker. */
export const HEALTH_CHANGE = object(CHANGE);

/** How an allocation or a worker is, and how it was in the last 90 days. */
export const HEALTH_RECORD = object({
  ...CHANGE,
  changes: described(integer({ min: 0 }), "How often it changed in the last 90 days"),
  known_since: described(TIME, "Since when it is known, within the last 90 days"),
  good_percent: described(
    anything({ type: "number", minimum: 0, maximum: 100 }) as Shape<number>,
    "How much of that time it was in the good state",
  ),
});
