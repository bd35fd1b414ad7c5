import path from "node:path";
import type { Layout } from "../../bucket/base/layout.ts";
import { loadKvKey } from "../../bucket/kv/kv-access.ts";
import { seal, unseal } from "../../codec/crypto/seal.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { makePrivateFolder, namesIn, readBounded, remove, writeAtomic } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { valueIn } from "../../core/shape.ts";
import type { RunParams } from "../protocol.ts";
import { PROPOSAL, type Proposal } from "./proposal.ts";

/** How many proposals that have ended are kept. */
const MOST_ENDED = 100;
/** Where the parameters are sealed for; the name is the id of the proposal. */
const SEALED_PARAMS = "proposals";
const SUFFIX = ".json";
/** What a write leaves that is killed before its file has its name. */
const UNFINISHED = /^\..+\.tmp$/;
/** Room for the longest command, twice: masked and sealed. */
const PROPOSAL_BYTES = 4 * 1024 * 1024;

/** All proposals of a bucket, the newest first. A file that is damaged is none: nothing may rest on it. */
export async function readProposals(layout: Layout): Promise<Proposal[]> {
  const ids = (await namesIn(layout.proposals)).map((name) => path.basename(name, SUFFIX)).filter(isUuid);
  const found: Proposal[] = [];
  for (const id of ids.sort().reverse()) {
    const proposal = await readProposal(layout, id);
    if (proposal) found.push(proposal);
  }
  return found;
}

/** The proposal with this id; undefined where there is none. */
export async function readProposal(layout: Layout, id: string): Promise<Proposal | undefined> {
  const bytes = isUuid(id) ? await readBounded(proposalFile(layout, id), PROPOSAL_BYTES).catch(unlessDamaged) : undefined;
  const found = bytes && valueIn(PROPOSAL, bytes.toString());
  return found?.id === id ? found : undefined;
}

/** A file that is too large, or none at all, is damaged; what the system refuses is another matter. */
function unlessDamaged(error: unknown): undefined {
  if (!(error instanceof Failure)) throw error;
}

/** Stores a proposal, whole or not at all; once this resolves it is on the disk. */
export async function saveProposal(layout: Layout, proposal: Proposal): Promise<void> {
  await makePrivateFolder(layout.proposals);
  faultPoint("proposal: folder");
  await writeAtomic(proposalFile(layout, proposal.id), `${JSON.stringify(proposal, null, 2)}\n`);
  faultPoint("proposal: saved");
}

/**
 * Removes all but the newest 100 of those that have ended, and what killed writes have left; answers what stays. To be called
 * while nobody writes a proposal of the bucket.
 */
export async function pruneProposals(layout: Layout): Promise<Proposal[]> {
  for (const name of await namesIn(layout.proposals)) if (UNFINISHED.test(name)) await remove(path.join(layout.proposals, name));
  const all = await readProposals(layout);
  const old = all.filter((one) => one.ended).slice(MOST_ENDED);
  for (const { id } of old) await remove(proposalFile(layout, id));
  return all.filter((one) => !old.includes(one));
}

/** The parameters as they are kept until the run starts: people write secrets into commands. */
export async function sealedParams(layout: Layout, id: string, params: RunParams): Promise<string> {
  return seal(await loadKvKey(layout), SEALED_PARAMS, id, JSON.stringify(params));
}

/** The parameters that are proposed, as they were given. Throws `failed` for those that another key has sealed. */
export async function openedParams(layout: Layout, { id, sealed }: Proposal): Promise<RunParams> {
  return JSON.parse(unseal(await loadKvKey(layout), SEALED_PARAMS, id, sealed ?? ""));
}

function proposalFile(layout: Layout, id: string): string {
  return path.join(layout.proposals, id + SUFFIX);
}
