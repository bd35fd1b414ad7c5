import path from "node:path";
import { auditFiles, auditTail } from "../../audit/files.ts";
import { AUDIT_KINDS } from "../../audit/line.ts";
import { readAudit } from "../../audit/read.ts";
import { Failure } from "../../core/errors.ts";
import { openContained } from "../../core/files.ts";
import { described, list, object, optional, quote, refined, string, withDefault, withExample } from "../../core/shape.ts";
import { downloadAnswer, fileDownload } from "../../http/download.ts";
import { json } from "../../http/message.ts";
import { ID } from "../../run/record.ts";
import { route } from "../context.ts";
import { CURSOR_TEXT, component, PAGE, page } from "../routes/shapes.ts";

const AUDIT_LINES = "application/x-ndjson";
const KIND_NAMES: readonly string[] = AUDIT_KINDS;

/** Kinds of lines, with commas between them. */
const KINDS = refined(withExample(string({ max: 500 }), "start,cancel"), (text, at, report) => {
  const names = text.split(",");
  const unknown = names.find((name) => !KIND_NAMES.includes(name));
  if (unknown !== undefined) report(at, `${quote(unknown)} is no kind: expected ${KIND_NAMES.join(", ")}`);
  return names;
});

/** A time, or its beginning: a day or a month. */
const SOME_TIME = withExample(
  string({ pattern: /^\d{4}-\d\d(?:-\d\d(?:T[\d:.]{1,12}Z?)?)?$/, means: "a time such as 2026-11-26T10:00:00Z, or a day" }),
  "2026-11-26T10:00:00Z",
);
const TEXT = string({ min: 1, max: 200 });

/** The audit: what was done by whom. It is only read over HTTP. */
export const AUDIT_ROUTES = [
  route("GET /api/audit", "read", {
    summary: "List the lines of the audit, newest first",
    description:
      "A token that is limited to some buckets gets their lines alone. One answer looks at 64 MiB: it may have fewer lines " +
      "than `limit`, and go on. Lines are shown as they stand in the files; `ops audit verify` tells whether they hold.",
    query: {
      what: optional(described(KINDS, "Only these kinds, with commas between them")),
      who: optional(described(TEXT, "Only this name")),
      from: optional(described(TEXT, "Only this address")),
      bucket: optional(ID),
      run: optional(ID),
      request: optional(TEXT),
      since: optional(described(SOME_TIME, "From this time on, UTC")),
      until: optional(described(SOME_TIME, "Before this time, UTC")),
      limit: withDefault(PAGE.limit, 50),
      cursor: optional(CURSOR_TEXT),
    },
    answer: { status: 200, description: "A page of lines", shape: page("AuditLine") },
    async handle({ query }, { audit, identity }) {
      const { limit, cursor, ...wanted } = query;
      return json(200, await readAudit(audit.folder, { ...wanted, buckets: identity.buckets }, limit, cursor));
    },
  }),
  route("GET /api/audit/head", "read", {
    summary: "Show where the audit ends, and the public key that verifies it",
    description: "The hash, noted elsewhere, shows later that no line up to it was cut off.",
    answer: { status: 200, description: "The end of the audit", shape: component("AuditEnd") },
    failures: ["audit_unavailable"],
    async handle(_, { audit }) {
      const { publicKey: public_key, fingerprint } = await audit.key();
      return json(200, { ...(await audit.head()), public_key, fingerprint, trouble: audit.trouble ?? null });
    },
  }),
  route(
    "GET /api/audit/files",
    { role: "read", everywhere: true },
    {
      summary: "List the files of the audit, the oldest first",
      answer: { status: 200, description: "One file for each month", shape: object({ items: list(component("AuditFile")) }) },
      async handle(_, { audit }) {
        const names = await auditFiles(audit.folder);
        const sizes = await Promise.all(names.map(async (name) => (await auditTail(path.join(audit.folder, name))).size));
        return json(200, { items: names.map((name, index) => ({ name, size_bytes: sizes[index] })) });
      },
    },
  ),
  route(
    "GET /api/audit/files/{name}",
    { role: "read", everywhere: true },
    {
      summary: "Download a file of the audit, byte for byte",
      answer: { status: 200, description: "Its whole lines", type: AUDIT_LINES, ranges: true },
      failures: ["file_not_found"],
      async handle({ params: { name = "" }, request }, { audit }) {
        if (!(await auditFiles(audit.folder)).includes(name))
          throw new Failure("file_not_found", `the audit has no file ${quote(name)}`);
        const { size } = await auditTail(path.join(audit.folder, name));
        const download = await fileDownload(AUDIT_LINES, await openContained(audit.folder, name));
        return await downloadAnswer(request, { ...download, sizeBytes: size });
      },
    },
  ),
];
