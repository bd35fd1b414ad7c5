/** Sequences that a terminal would obey: CSI, OSC, and other escapes. */
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
const REPLACEMENT = "\ufffd";

/**
 * Text of unknown origin as lines that are harmless wherever they are shown: escape sequences are left out, any other
 * control character is replaced. At most the last `lines`, each cut to `length` characters.
 */
export function plainLines(text: string, limits: { lines: number; length: number }): string[] {
  if (text === "") return [];
  const all = text.replace(/\n$/, "").split(/\r?\n/);
  return all.slice(-limits.lines).map((line) => plainLine(line, limits.length));
}

/** One line of {@link plainLines}. */
export function plainLine(text: string, length: number): string {
  const plain = text
    .replace(SEQUENCES, "")
    .replaceAll("\t", "  ")
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, REPLACEMENT);
  return plain.length > length ? `${plain.slice(0, length)}…`.toWellFormed() : plain;
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes as text, a byte order mark included; undefined where they are not UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return UTF8.decode(bytes);
  } catch {
    return undefined;
  }
}
