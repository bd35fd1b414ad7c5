import { buffer } from "node:stream/consumers";
import { Failure } from "../../core/errors.ts";
import { integer, nullable, object, oneOf, parsedJson, string } from "../../core/shape.ts";
import { FINDING_GRADES } from "../../operation/tend/doctor-bucket.ts";
import type { Parsed, Target } from "../base/flags.ts";
import { showFindings } from "../bucket/doctor.ts";
import { openingSecrets, showVerdict, trustIn } from "../bucket/snapshots.ts";
import { expectAnswer, openRemoteBucket } from "./remote-bucket.ts";

const FINDING = object({
  grade: oneOf(...FINDING_GRADES),
  where: string(),
  check: string(),
  message: string(),
  advice: nullable(string()),
});

/** `ops doctor` on a server: its host, the bucket and the workers as they are seen from there. */
export async function remoteDoctor(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const lines = (await buffer(bucket.stream("/doctor", {}, { silenceMs: LONG_SILENCE_MS }))).toString().trimEnd().split("\n");
  return showFindings(
    lines.map((line) => expectAnswer(FINDING, parsedJson(line))),
    input,
  );
}

const AMOUNT = integer({ min: 0 });
/** What a server has found in a snapshot that can be restored. */
const VERDICT = object({ error: nullable(string()), files: AMOUNT, size_bytes: AMOUNT, sealed_values: AMOUNT });
/** How long a server may take for the check of a snapshot. */
const LONG_SILENCE_MS = 600_000;

/** `ops snapshot verify` on a server. */
export async function remoteVerifySnapshot(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const name = await bucket.snapshotNamed(input.operands[0] ?? "");
  const path = bucket.path("/snapshots", name, "verify");
  const secrets = await openingSecrets(input, await bucket.sealOf(name));
  const json = { ...trustIn(input), ...secrets };
  const found = await bucket.client.call("POST", path, { json, silenceMs: LONG_SILENCE_MS });
  if (typeof found.error === "string") throw new Failure("failed", found.error);
  return showVerdict(name, expectAnswer(VERDICT, found), input);
}
