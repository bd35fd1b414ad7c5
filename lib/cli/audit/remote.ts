import { open } from "node:fs/promises";
import path from "node:path";
import { isAuditFile } from "../../audit/files.ts";
import type { AuditLine } from "../../audit/line.ts";
import { Failure } from "../../core/errors.ts";
import { PRIVATE_FILE } from "../../core/files.ts";
import { list } from "../../core/shape.ts";
import type { Parsed, Target } from "../base/flags.ts";
import type { ApiClient } from "../remote/client.ts";
import { bucketNamed, expectAnswer, namedAnswer, PAGE, queryText } from "../remote/remote-bucket.ts";
import { openServer } from "../remote/target.ts";
import { auditWanted, exportFolder, printAudit, printExport, printHead } from "./here.ts";

const AUDIT = "/api/audit";
const PAGE_LINES = 500;

/** `ops audit show --server`. With `--bucket` only the lines of that bucket. */
export async function showAudit(input: Parsed, target: Target): Promise<number> {
  const client = await openServer(target);
  const { wanted, limit } = auditWanted(input);
  const bucket = input.values.has("bucket") ? await bucketNamed(client, target.bucket) : undefined;
  const { what, who, from, run, since, until } = wanted;
  const query = { what: what?.join(","), who, from, run, since, until, bucket };
  const items: unknown[] = [];
  for (let cursor: string | undefined; items.length < limit; ) {
    const asked = queryText({ ...query, cursor, limit: Math.min(PAGE_LINES, limit - items.length) });
    const page = expectAnswer(PAGE, await client.call("GET", AUDIT + asked));
    items.push(...page.items);
    if (typeof page.next_cursor !== "string") break;
    cursor = page.next_cursor;
  }
  const shape = list((await import("../../server/routes/shapes.ts")).component("AuditLine"));
  return printAudit(input, expectAnswer(shape, items) as AuditLine[]);
}

/** `ops audit head --server`. */
export async function showHead(input: Parsed, target: Target): Promise<number> {
  return printHead(input, await auditEnd(await openServer(target)));
}

async function auditEnd(client: ApiClient) {
  return await namedAnswer("AuditEnd", await client.call("GET", `${AUDIT}/head`));
}

/** `ops audit export --server`. */
export async function exportAudit(input: Parsed, target: Target): Promise<number> {
  const client = await openServer(target);
  const { public_key: publicKey } = await auditEnd(client);
  const { items } = expectAnswer(PAGE, await client.call("GET", `${AUDIT}/files`));
  const to = await exportFolder(input);
  const names: string[] = [];
  for (const { name } of items) {
    // The server's word must not lead out of the folder.
    if (typeof name !== "string" || !isAuditFile(name))
      throw new Failure("failed", "Cannot understand the server's answer: a file of its audit has another name");
    await using file = await open(path.join(to, name), "w", PRIVATE_FILE);
    for await (const piece of client.stream("GET", `${AUDIT}/files/${name}`)) await file.write(piece);
    names.push(name);
  }
  return await printExport(input, { to, names, publicKey });
}
