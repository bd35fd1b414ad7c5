const UNITS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/**
 * A duration as Go writes it (`30m`, `1h30m`, `90s`, `1.5h`, `250ms`), in milliseconds; undefined for anything else,
 * such as a number without unit or a sign.
 */
export function parseDurationMs(text: string): number | undefined {
  if (!/^(?:\d{1,9}(?:\.\d{1,9})?(?:h|ms|m|s)){1,4}$/.test(text)) return undefined;
  const parts = [...text.matchAll(/([\d.]+)([a-z]+)/g)];
  return parts.reduce((sum, [, number, unit = ""]) => sum + Number(number) * (UNITS[unit] as number), 0);
}
