import { Failure } from "../../core/errors.ts";
import { parsedJson } from "../../core/shape.ts";
import type { Database, Row, SqlValue } from "../base/database.ts";

/** The key of the last row of a page: the next page begins behind it. */
export type PageKey = readonly (string | number)[];

/** What is read page by page, in the order of a key that an index has. */
export interface Listing {
  /** What the query selects, in the order in which it is shown. */
  columns: string;
  from: string;
  /** Tables with at most one row for each row of `from`; only the rows of a page are looked up there. */
  joins?: string;
  /** The columns of the key, in order; no two rows have the same. */
  key: readonly [string, ...string[]];
  conditions?: readonly string[];
  values?: readonly SqlValue[];
  /** What stands between the conditions and the order. */
  group?: string;
  /** Only rows whose first column of the key is one of these. */
  leads?: readonly string[] | undefined;
}

/** How many rows, and behind which key. */
export interface PageOf {
  after?: PageKey | undefined;
  limit: number;
}

/** The text that stands for a key in an answer. */
export function cursorOf(key: PageKey | null): string | null {
  return key && Buffer.from(JSON.stringify(key)).toString("base64url");
}

/** The key that a cursor stands for. Throws `invalid_request` for a text that is no cursor. */
export function keyOf(cursor: string | undefined): PageKey | undefined {
  if (cursor === undefined) return undefined;
  const key = parsedJson(Buffer.from(cursor, "base64url").toString());
  const isPart = (part: unknown) => typeof part === "string" || Number.isSafeInteger(part);
  if (Array.isArray(key) && key.every(isPart)) return key;
  throw wrongCursor();
}

/** The failure for a cursor that is not from an answer. */
export function wrongCursor(): Failure {
  return new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
}

/**
 * A page of a listing: SQLite looks up its first row and reads on from there. `next` is null at the end. Throws
 * `invalid_request` where `after` is not a key of this listing.
 */
export function readPage(db: Database, listing: Listing, { after, limit }: PageOf): { rows: Row[]; next: PageKey | null } {
  const { key, leads } = listing;
  if (after && after.length !== key.length) throw wrongCursor();
  const rows: Row[] = [];
  // One query for each lead: SQLite finds the beginning of a page in an index only where the lead is one value.
  for (const lead of leads === undefined ? [undefined] : [...new Set(leads)].sort()) {
    const begun = after && lead !== undefined ? String(after[0]) : "";
    if (lead !== undefined && (lead < begun || (lead === begun && key.length === 1))) continue;
    const behind = lead === undefined || lead === begun ? after : undefined;
    for (const row of rowsOf(db, listing, { lead, after: behind, limit: limit + 1 - rows.length })) rows.push(row);
    if (rows.length > limit) break;
  }
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return { rows: shown, next: rows.length > limit && last ? key.map((_, at) => last[`key${at}`] as string | number) : null };
}

function rowsOf(db: Database, listing: Listing, { lead, after, limit }: PageOf & { lead: string | undefined }): Row[] {
  const { columns, from, joins = "", key, conditions = [], values = [], group = "" } = listing;
  const own = lead === undefined ? [] : [lead];
  const behind = after?.slice(own.length) ?? [];
  const where = [
    ...conditions,
    ...own.map(() => `${key[0]} = ?`),
    ...(behind.length === 0 ? [] : [`(${key.slice(own.length).join(", ")}) > (${behind.map(() => "?").join(", ")})`]),
  ];
  const selected = [columns, ...key.map((column, at) => `${column} AS key${at}`)].join(", ");
  const page = `FROM ${from} ${where.length > 0 ? `WHERE ${where.join(" AND ")}` : ""} ${group} ORDER BY ${key.join(", ")} LIMIT ?`;
  const sql =
    joins === ""
      ? `SELECT ${selected} ${page}`
      : `SELECT ${selected} FROM (SELECT * ${page}) ${joins} ORDER BY ${key.join(", ")}`;
  return db.all(sql, ...values, ...own, ...behind, limit);
}
