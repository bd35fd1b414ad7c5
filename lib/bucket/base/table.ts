import type { Database, Row, SqlValue } from "./database.ts";

/** A column of a table: its name, how a stored value is read and how a value is stored. */
export interface Column<T> {
  name: string;
  read(stored: SqlValue): T;
  store(value: T): SqlValue;
}

/** The kinds of columns. */
export const column = {
  /** The value as it is. */
  plain<T extends SqlValue>(name: string): Column<T> {
    return { name, read: (stored) => stored as T, store: (value) => value };
  },

  /** True and false as 1 and 0. */
  flag(name: string): Column<boolean> {
    return { name, read: (stored) => stored === 1, store: (value) => (value ? 1 : 0) };
  },

  /** A list, an object or null as JSON. */
  json<T>(name: string): Column<T> {
    return { name, read: (stored) => JSON.parse(String(stored)), store: (value) => JSON.stringify(value) };
  },

  /** A field that may be absent as NULL. */
  optional<T extends SqlValue>(name: string): Column<T | undefined> {
    return { name, read: (stored) => (stored as T) ?? undefined, store: (value) => value ?? null };
  },

  /** Bytes; a field that may be absent as NULL. */
  blob(name: string): Column<Buffer | undefined> {
    const read = (stored: SqlValue) => (stored === null ? undefined : Buffer.from(stored as Uint8Array));
    return { name, read, store: (value) => value ?? null };
  },
};

type Columns = Readonly<Record<string, Column<unknown>>>;

/** The one description of a table: the column of each field of its records. Other columns are not read. */
export interface Table<C extends Columns> {
  name: string;
  columns: C;
}

type ValueOf<C> = C extends Column<infer T> ? T : never;

/** The record that a row of a table is read as. */
export type RecordOf<T> =
  T extends Table<infer C>
    ? { [K in keyof C as undefined extends ValueOf<C[K]> ? never : K]: ValueOf<C[K]> } & {
        [K in keyof C as undefined extends ValueOf<C[K]> ? K : never]?: ValueOf<C[K]>;
      }
    : never;

/** The records of a table; `rest` is the query behind its name: joins, conditions and order. */
export function readRecords<C extends Columns>(
  db: Database,
  { name, columns }: Table<C>,
  rest = "",
  ...values: SqlValue[]
): RecordOf<Table<C>>[] {
  const fields = Object.entries(columns);
  const names = fields.map(([, one]) => `${name}.${one.name}`);
  return db.tuples(`SELECT ${names.join(", ")} FROM ${name} ${rest}`, ...values).map((stored) => {
    const record: Record<string, unknown> = {};
    for (let index = 0; index < fields.length; index++) {
      const [field, one] = fields[index] as (typeof fields)[0];
      const read = one.read(stored[index] as SqlValue);
      if (read !== undefined) record[field] = read;
    }
    return record as RecordOf<Table<C>>;
  });
}

/** The row, by column, that a record is stored as. */
export function rowOf<C extends Columns>({ columns }: Table<C>, record: RecordOf<Table<C>>): Row {
  const fields = record as Record<string, unknown>;
  const row: Row = {};
  for (const [field, one] of Object.entries(columns)) row[one.name] = one.store(fields[field]);
  return row;
}

/** Writes rows, all with the same columns, in the place of those with the same key. */
export function writeRows(db: Database, table: string, rows: readonly Row[]): void {
  const key = keyOfTable(db, table);
  const names = Object.keys(rows[0] ?? {});
  const updates = names.filter((name) => !key.includes(name)).map((name) => `${name} = excluded.${name}`);
  const sql = `INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})
    ON CONFLICT (${key.join(", ")}) DO ${updates.length === 0 ? "NOTHING" : `UPDATE SET ${updates.join(", ")}`}`;
  for (const row of rows) db.run(sql, ...Object.values(row));
}

/**
 * Makes a table hold exactly these rows, besides those whose first key column has a value of `keep`. Writes only the
 * rows that differ. Bytes are not compared: another column tells whether they differ.
 */
export function replaceRows(db: Database, table: string, rows: readonly Row[], keep: ReadonlySet<SqlValue> = new Set()): void {
  const key = keyOfTable(db, table);
  const bytes = columnsOf(db, table, "type = 'BLOB'");
  const others = Object.keys(rows[0] ?? {}).filter((name) => !key.includes(name) && !bytes.includes(name));
  const compared = [...key, ...others];
  const identity = (values: SqlValue[]) => values.slice(0, key.length).join("\0");
  const known = db.tuples(`SELECT ${compared.join(", ")} FROM ${table}`);
  const stored = new Map(known.map((values) => [identity(values), values]));
  const differs = (row: Row) => {
    const values = compared.map((name) => row[name] as SqlValue);
    const before = stored.get(identity(values));
    stored.delete(identity(values));
    return !before?.every((value, index) => value === values[index]);
  };
  writeRows(db, table, known.length === 0 ? rows : rows.filter(differs));
  const where = key.map((name) => `${name} = ?`).join(" AND ");
  for (const values of stored.values())
    if (!keep.has(values[0] ?? null)) db.run(`DELETE FROM ${table} WHERE ${where}`, ...values.slice(0, key.length));
}

function keyOfTable(db: Database, table: string): string[] {
  return columnsOf(db, table, "pk > 0");
}

function columnsOf(db: Database, table: string, which: string): string[] {
  const sql = `SELECT name FROM pragma_table_info(?) WHERE ${which} ORDER BY pk`;
  return db.all<{ name: string }>(sql, table).map(({ name }) => name);
}
