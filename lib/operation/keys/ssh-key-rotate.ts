import { catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import {
  beginSshKeyChange,
  describeSshKey,
  dropOldSshKey,
  makeSshKey,
  noteLeft,
  type SshKeyChange,
  sshKeyChange,
  sshKeyFile,
  switchSshKey,
} from "../../bucket/workspace/ssh-key.ts";
import { runAll } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { parametersOf } from "../../run/protocol.ts";
import { type KeyHolder, KeyHolding, keyHolders } from "../../transport/trust/authorized-keys.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { sshSettingsOf } from "../base/fleet.ts";
import { concluded, type Graded, gradeOf } from "../base/outcome.ts";

/** How the change went on a worker or a jump host: `ok` where the new key lets in and the old one is gone. */
interface Held extends Graded {
  is_jump_host: boolean;
}

/** What a rotation works with. */
interface Rotating {
  context: OperationContext;
  change: SshKeyChange;
  keyFile: string;
  concurrency: number;
  held: Map<Held, KeyHolding>;
}

/**
 * Changes the ssh key of the bucket (docs/keys.md): the new key is installed on all workers and jump hosts by the present one,
 * and tried out; then it takes the present one's place; then the one before is removed everywhere. What cannot be reached is
 * named, and the key before is offered too until a later rotation has reached it. Where a machine answers and the new key does
 * not let in, nothing is switched. Cut off anywhere, no worker is lost, and the next rotation goes on. Throws `failed` with the
 * result while anything is left, and `cancelled`.
 */
export const rotateSshKey: Operation = async (context, params) => {
  const { dry_run, concurrency } = parametersOf("ssh_key_rotate", params);
  const { layout, db, launcher, log, run, signal, server } = context;
  const { settings } = await loadOpsConf(layout);
  const keyFile = sshKeyFile(layout, settings);
  if (!(await describeSshKey(keyFile, launcher)).present)
    throw new Failure("failed", "Cannot rotate the ssh key: the bucket has none; make one with `ops ssh-key create`");
  const begun = await sshKeyChange(keyFile);
  const ssh = await sshSettingsOf(layout, settings, Boolean(server));
  const overSsh = catalogWorkers(db).filter(({ connection }) => connection === "ssh");
  const holders = keyHolders(overSsh, ssh);
  if (dry_run) return tellPlan(context, begun, holders);
  const change = begun ?? (await beginSshKeyChange(keyFile, await makeSshKey(launcher, signal)));
  const keys = { oldKey: await publicKeyIn(context, change.oldFile), newKey: await publicKeyIn(context, change.newFile) };
  log.info(`${begun ? "the change of the ssh key goes on" : "made a new ssh key"}, run ${run.id}`);
  const tools = { settings: ssh, newFile: change.newFile, keys, launcher, signal };
  const held = new Map(holders.map((one) => [unasked(one), new KeyHolding(one, tools)]));
  const rotating = { context, change, keyFile, concurrency: concurrency ?? settings.sshConcurrency, held };
  try {
    return await rotatedKey(rotating, begun !== undefined);
  } finally {
    await Promise.all([...held.values()].map((one) => one.close()));
  }
};

async function rotatedKey(rotating: Rotating, resumed: boolean) {
  const { context, change, keyFile, held } = rotating;
  const { launcher, log } = context;
  const all = [...held.keys()];
  const [fingerprint, old_fingerprint] = [
    (await describeSshKey(change.newFile, launcher)).fingerprint,
    (await describeSshKey(change.oldFile, launcher)).fingerprint,
  ];
  // `switched`: the new key is the bucket's. `old_kept`: some machine may know only the key before, and both are offered.
  const result = { workers: all, resumed, switched: !change.isNext, old_kept: true, fingerprint, old_fingerprint };
  // Workers are tried out by the new key alone, which their jump hosts must know first.
  for (const isJump of [true, false])
    await each(rotating, "install", (one) => one.is_jump_host === isJump && one.outcome === "not_started");
  const isRefused = all.some(({ outcome }) => outcome === "failed");
  const isAnyReached = all.length === 0 || all.some(({ outcome }) => outcome === "ok");
  if (change.isNext && (isRefused || !isAnyReached)) {
    const why = isRefused ? "machines that answer do not let the new key in" : "no worker could be reached";
    return concluded(result, `the ssh key stays as it is: ${why}`, sentencesOf(all));
  }
  if (change.isNext) await switchSshKey(keyFile);
  result.switched = true;
  log.info(`the key of the bucket is ${fingerprint}`);
  await each(rotating, "remove", ({ outcome }) => outcome === "ok");
  if (all.every(({ outcome }) => outcome === "ok")) {
    await dropOldSshKey(keyFile);
    result.old_kept = false;
    log.info(`the key before, ${old_fingerprint}, is removed everywhere`);
  }
  const left = all.filter(({ outcome }) => outcome !== "ok");
  const names = left.map(({ worker }) => worker);
  if (result.old_kept) await noteLeft(keyFile, names);
  const what = `${counted(left.length, "machine")} may know only the key before, which is offered too until \`ops ssh-key rotate\` has reached them`;
  return concluded(result, what, sentencesOf(left));
}

/** Does a step on all machines for which a condition holds, and notes how it went. */
async function each(
  { context, concurrency, held }: Rotating,
  step: "install" | "remove",
  isMeant: (one: Held) => boolean,
): Promise<void> {
  const { log, progress, signal } = context;
  const meant = [...held].filter(([one]) => isMeant(one));
  const countOne = progress.counting(step, meant.length);
  const work = async ([one, holding]: [Held, KeyHolding]) => {
    try {
      await holding[step]();
      one.outcome = "ok";
      log.info(`${one.worker}: ${step === "install" ? "the new key lets in" : "the key before is removed"}`, tagOf(one));
    } catch (error) {
      Object.assign(one, gradeOf(error));
      log.warn(`${one.worker}: ${one.outcome}: ${one.error}`, tagOf(one));
    }
    countOne();
  };
  await runAll(meant, concurrency, work, signal);
  throwIfCancelled(signal);
}

function tagOf({ worker, is_jump_host }: Held): { worker?: string } {
  return is_jump_host ? {} : { worker };
}

function unasked({ name: worker, isJump }: KeyHolder): Held {
  return { worker, outcome: "not_started", error: null, is_jump_host: isJump };
}

function sentencesOf(held: readonly Held[]): string[] {
  return held.filter(({ outcome }) => outcome !== "ok").map(({ worker, outcome, error }) => `${worker}: ${error ?? outcome}`);
}

async function publicKeyIn({ launcher }: OperationContext, file: string): Promise<string> {
  const { public_key } = await describeSshKey(file, launcher);
  if (public_key === null) throw new Failure("failed", `Cannot rotate the ssh key: ${file} is no key that ssh can use`);
  return public_key;
}

/** What a rotation would do. */
function tellPlan({ log }: OperationContext, begun: SshKeyChange | undefined, holders: readonly KeyHolder[]) {
  const jumps = holders.filter(({ isJump }) => isJump).length;
  const places = `${counted(holders.length - jumps, "worker")} and ${counted(jumps, "jump host")}`;
  log.info(begun ? "an earlier rotation would go on" : "would make a new key");
  if (begun?.isNext !== false) log.info(`would install it on ${places} by the present key, and sign in there with it alone`);
  log.info(`would then remove the key before from ~/.ssh/authorized_keys of ${places}: who else uses it there is locked out`);
  for (const { name } of holders) log.info(`  ${name}`);
  const switched = begun?.isNext === false;
  const none = { fingerprint: null, old_fingerprint: null };
  return { workers: holders.map(unasked), resumed: begun !== undefined, switched, old_kept: switched, ...none };
}
