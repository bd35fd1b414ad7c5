import { matchGlob } from "../codec/glob.ts";

/** What a deploy does to one allocation. */
export type Action = "start" | "restart" | "reload" | "sync" | "promote" | "adopt" | "skip";

/** The outcome of an allocation's last gate; empty where there was none to pass. */
type Gate = "" | "pending" | "passed" | "failed";

/** The files of an allocation: path to a digest of mode and content. */
export type FileDigests = Record<string, string>;

/** What was promoted on an allocation before, as the database keeps it. */
export interface Promoted {
  /** Empty before the first promotion, and after a disabled allocation was enabled again. */
  hash: string;
  version: string;
  files: FileDigests;
  gate: Gate;
  /** A change of this allocation began and was not promoted: files on the worker may be newer. */
  unfinished: boolean;
  /** The service was stopped, or may have been. */
  stopped: boolean;
}

/** What a deploy is to bring. */
export interface Target {
  hash: string;
  version: string;
  files: FileDigests;
}

/** How a job wants to be changed (manifest). */
export interface ChangePolicy {
  restartPolicy: "always" | "reload" | "never";
  restartGlobs: readonly string[];
}

/** The options of a deploy, beside its jobs. */
export interface ChangeOptions {
  /** Repeats the change of an allocation that is complete. */
  force: boolean;
  /** The ids of the allocations that `force` is limited to; without them `force` is about all. */
  forced?: ReadonlySet<string>;
  /** Brings files and promotes them, but runs no target, and no hook in place of a target. */
  syncOnly: boolean;
  /** Takes over what lies on the workers already, and does nothing else. */
  adopt?: boolean;
}

/** What a deploy does to one allocation, and why. */
export interface Decision {
  action: Action;
  /** In a few words, for people. */
  reason: string;
}

const POLICY_ACTION: Record<ChangePolicy["restartPolicy"], Action> = { always: "restart", reload: "reload", never: "sync" };

/**
 * Decides what happens to an allocation: the first rule that applies. With `syncOnly` a first start stays a start: the
 * deploy refuses it.
 */
export function decide(
  allocation: { disabled: boolean; promoted: Promoted; target: Target },
  policy: ChangePolicy,
  { force, syncOnly }: ChangeOptions,
): Decision {
  const decision = decideChange(allocation, policy, force);
  const isUpdate = decision.action === "restart" || decision.action === "reload";
  return syncOnly && isUpdate ? { ...decision, action: "sync" } : decision;
}

/**
 * Decides whether an allocation may be adopted: one that ops has never done anything to. `isKnown` is true for any other.
 */
export function decideAdoption({
  disabled,
  promoted,
  isKnown,
}: {
  disabled: boolean;
  promoted: Promoted;
  isKnown: boolean;
}): Decision {
  if (disabled) return { action: "skip", reason: "disabled" };
  if (promoted.hash !== "") return { action: "skip", reason: "already promoted" };
  if (isKnown) return { action: "skip", reason: "an earlier deploy or job control began there: deploy it" };
  return { action: "adopt", reason: "the files there are the rendered ones" };
}

function decideChange(
  { disabled, promoted, target }: { disabled: boolean; promoted: Promoted; target: Target },
  policy: ChangePolicy,
  force: boolean,
): Decision {
  const complete = isComplete(promoted, target);
  if (disabled) return decideDisabled(promoted, complete, force);
  if (promoted.hash === "") return { action: "start", reason: "new" };
  if (promoted.stopped) return { action: "start", reason: "it was stopped" };
  const change = POLICY_ACTION[policy.restartPolicy];
  if (promoted.hash !== target.hash) return { action: onChange(promoted, target, policy), reason: "files changed" };
  if (promoted.unfinished) return { action: change, reason: "an earlier deploy did not finish" };
  if (force) return { action: change, reason: "forced" };
  if (promoted.version !== target.version) return { action: change, reason: "version changed" };
  return { action: "skip", reason: "already promoted" };
}

function decideDisabled(promoted: Promoted, complete: boolean, force: boolean): Decision {
  if (promoted.hash === "") return { action: "skip", reason: "disabled" };
  if (complete && !force) return { action: "skip", reason: "disabled, already promoted" };
  return { action: "promote", reason: "disabled" };
}

/** True when the target is promoted on the allocation, whatever its gate. */
export function isComplete(promoted: Promoted, target: Target): boolean {
  return promoted.hash === target.hash && promoted.version === target.version && !promoted.unfinished;
}

/** True when the gate of an allocation that is otherwise complete still has to be passed. */
export function isGateOpen(promoted: Promoted): boolean {
  return promoted.gate === "pending" || promoted.gate === "failed";
}

function onChange(promoted: Promoted, target: Target, policy: ChangePolicy): Action {
  if (policy.restartPolicy !== "reload") return POLICY_ACTION[policy.restartPolicy];
  const known = Object.keys(promoted.files).length > 0;
  const paths = known ? changedPaths(promoted.files, target.files) : [];
  return paths.some((path) => policy.restartGlobs.some((glob) => matchGlob(glob, path))) ? "restart" : "reload";
}

/** The paths that were added, altered or removed, sorted. */
export function changedPaths(before: FileDigests, after: FileDigests): string[] {
  const paths = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...paths].filter((path) => before[path] !== after[path]).sort();
}
