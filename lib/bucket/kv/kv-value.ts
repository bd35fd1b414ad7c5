/**
 * The other hosts of a list, as a value of the store: read as the list without that host. A list is stored once for all
 * the hosts in it, since the peers of each of n workers, written out, would be n² hosts.
 */
interface Peers {
  /** Separated by commas. */
  hosts: string;
  without: string;
}

/** What is written to the store. */
export type KvValue = string | Peers;

/** What is read of a value. */
export function textOf(value: KvValue): string {
  if (typeof value === "string") return value;
  return `,${value.hosts},`.replace(`,${value.without},`, ",").slice(1, -1);
}

/** True for values that are the same without a look at their text. */
export function isSame(a: KvValue, b: KvValue): boolean {
  if (typeof a === "string" || typeof b === "string") return false;
  return a.hosts === b.hosts && a.without === b.without;
}
