import { boolean, described, integer, list, nullable, object, oneOf, string } from "../../core/shape.ts";
import { PROPOSAL_END, PROPOSAL_ENDS, PROPOSED } from "../../run/approval/proposal.ts";
import { TIME } from "../../run/progress.ts";

/** A proposal as the API shows it. */
export const SHOWN_PROPOSAL = object({
  ...PROPOSED,
  proposed_at: TIME,
  proposed_by: described(string(), "The name of the token"),
  state: described(oneOf("open", "approved", ...PROPOSAL_ENDS), "`open`: it lacks approvals. `approved`: a start may name it"),
  required: described(integer({ min: 0 }), "How many approvals the bucket asks for now"),
  required_first: described(integer({ min: 0 }), "How many it asked for when this was proposed"),
  missing: described(integer({ min: 0 }), "How many approvals it lacks"),
  approvals: list(
    object({
      at: TIME,
      by: string(),
      counts: described(boolean(), "Given within a day, by a person whose token still allows such a start"),
    }),
  ),
  expires_at: described(TIME, "A day after the proposal or its last approval"),
  ended: nullable(PROPOSAL_END),
});
