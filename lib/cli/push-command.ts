import path from "node:path";
import { Failure } from "../core/errors.ts";
import type { Parsed } from "./flags.ts";
import { push } from "./push.ts";
import { stopRequest } from "./stop.ts";
import { visibleLines } from "./table.ts";

/** `ops push <base_url> --bucket <id>` with the token in OPS_SERVE_TOKEN (control-plane.md, Source push). */
export async function pushCommand(input: Parsed): Promise<number> {
  const bucket = input.values.get("bucket");
  if (bucket === undefined)
    throw new Failure("usage", "--bucket is missing: the UUID of the bucket on the server");
  const token = process.env.OPS_SERVE_TOKEN;
  if (!token) throw new Failure("usage", "no token: set OPS_SERVE_TOKEN to the server's API token");
  using stop = stopRequest();
  return await push({
    baseUrl: input.operands[0] as string,
    bucket,
    dir: path.resolve(input.values.get("dir") ?? "."),
    token,
    caFile: input.values.get("ca-file"),
    totp: input.values.get("totp"),
    signal: stop.signal,
    progress: (text) => process.stderr.write(`${text}\n`),
    output: (text) => process.stdout.write(visibleLines(text)),
  });
}
