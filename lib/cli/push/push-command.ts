import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import type { Parsed } from "../base/flags.ts";
import { type StopRequest, stopRequest } from "../base/stop.ts";
import { toStderr, toStdout } from "../base/terminal.ts";
import { push, rollback, type SourceChange } from "./push.ts";

/** `ops push <base_url> --bucket <id>` with the token in OPS_SERVE_TOKEN (control-plane.md, Source push). */
export async function pushCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  return await push({ ...changeOf(input, stop), dir: realPlace(input.values.get("dir") ?? ".") });
}

/** `ops push rollback <base_url> --bucket <id>`, likewise. */
export async function rollbackCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  return await rollback({ ...changeOf(input, stop), revision: input.values.get("revision") });
}

function changeOf(input: Parsed, { signal }: StopRequest): SourceChange {
  const bucket = input.values.get("bucket");
  if (bucket === undefined) throw new Failure("usage", "--bucket is missing: the UUID of the bucket on the server");
  const token = process.env.OPS_SERVE_TOKEN;
  if (!token) throw new Failure("usage", "no token: set OPS_SERVE_TOKEN to the server's API token");
  return {
    baseUrl: input.operands[0] as string,
    bucket,
    token,
    caFile: input.values.get("ca-file"),
    totp: input.values.get("totp"),
    signal,
    progress: (text) => toStderr(`${text}\n`),
    output: (text) => toStdout(text),
  };
}
