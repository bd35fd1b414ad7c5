import type { Operation } from "../base/context.ts";
import { build } from "./build.ts";

/**
 * The run of a push or a rollback: its source is in place already, so what is left is to note it for good in the run's
 * ops.log (control-plane.md, Source push 4) and to build it.
 */
export const push: Operation = async (context, params) => {
  const message = `revision ${params.revision} is the source now`;
  context.log.info(message);
  context.log.record({ event: context.run.kind, action: "accepted", msg: message });
  return await build(context, {});
};
