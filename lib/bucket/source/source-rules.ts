import { archiveFailure, type TarEntry } from "../../codec/archive/tar-read.ts";
import { SOURCE_PATHS } from "../base/layout.ts";

/** What one push may hold (decisions: Push). */
export const SOURCE_LIMITS = {
  /** All files together. */
  bytes: 256 * 1024 * 1024,
  /** Files and folders, those that are only part of another's path included. */
  entries: 20_000,
  pathBytes: 1_024,
  partBytes: 255,
} as const;

type SourceEntry = Pick<TarEntry, "path" | "type" | "size">;

interface Known {
  path: string;
  type: string;
  /** It had an entry of its own; else it is only part of another's path. */
  named: boolean;
}

/**
 * Decides for one archive which entries may become files, and for one build which files may be read. For an archive it
 * is asked before anything is written, and what it answers is the only way from a name to a path.
 */
export class SourceRules {
  readonly #known = new Map<string, Known>();
  /** Folders that something was entered below, with all that are on the way to them. */
  readonly #folders = new Set<string>();
  #bytes = 0;

  /**
   * The parts of an entry's path, each safe as the name of a file; none for `../` itself. A `../` before the name, as
   * `tar -C <bucket> .` writes it, is dropped. Throws `invalid_source` naming the entry.
   */
  admit(entry: TarEntry): string[] {
    const path = entry.path.replace(/^\.\//, "");
    const isTop = path === "." && entry.type === "directory";
    const problem = isTop ? this.#enter([path], entry.type) : this.problemOf({ ...entry, path });
    if (problem !== undefined) throw archiveFailure(entry.index, entry.path, problem);
    return isTop ? [] : path.split("/");
  }

  /** Why an entry cannot lie beside those asked about before, or undefined. */
  problemOf(entry: SourceEntry): string | undefined {
    const parts = entry.path.split("/");
    return (
      this.#typeProblem(entry) ??
      pathProblem(entry.path) ??
      rootProblem(parts, entry.type) ??
      this.#enter(parts, entry.type)
    );
  }

  /** Whether any entry was the folder workspace/ or below it. */
  get hasWorkspace(): boolean {
    return this.#known.has("workspace");
  }

  #typeProblem(entry: SourceEntry): string | undefined {
    if (entry.type !== "file" && entry.type !== "directory")
      return `a ${entry.type} is not allowed, only files and directories`;
    this.#bytes += entry.size;
    if (this.#bytes > SOURCE_LIMITS.bytes)
      return `all files together may have at most ${SOURCE_LIMITS.bytes / 1024 / 1024} MiB`;
    return undefined;
  }

  /** Remembers a path and the folders on the way to it; answers what keeps it from lying beside the others. */
  #enter(parts: string[], type: string): string | undefined {
    const folder = parts.slice(0, -1).join("/");
    for (let count = this.#folders.has(folder) ? parts.length : 1; count <= parts.length; count++) {
      const named = count === parts.length;
      const path = parts.slice(0, count).join("/");
      const clash = this.#enterOne({ path, type: named ? type : "directory", named });
      if (clash !== undefined) return clash;
    }
    this.#folders.add(folder);
    return undefined;
  }

  #enterOne(next: Known): string | undefined {
    const key = fold(next.path);
    const known = this.#known.get(key);
    if (!known) {
      this.#known.set(key, next);
      const tooMany = this.#known.size > SOURCE_LIMITS.entries;
      return tooMany ? `there are more than ${SOURCE_LIMITS.entries} files and folders` : undefined;
    }
    if (known.path !== next.path)
      return `${next.named ? "it" : next.path} differs from ${known.path} only in case or in how its letters are composed`;
    if (known.type !== next.type) return `${next.path} is both a file and a directory`;
    if (known.named && next.named) return "it is in the archive twice";
    known.named ||= next.named;
    return undefined;
  }
}

/** Equal for names that a file system without case, or one that composes accents, takes for the same. */
function fold(path: string): string {
  return path.normalize("NFC").toUpperCase().toLowerCase();
}

/** Why a name in an archive is none for a file below a folder, or undefined. */
export function pathProblem(path: string): string | undefined {
  if (path === "") return "it has no name";
  if (/\p{Cc}/u.test(path)) return "its name has a control character";
  if (path.startsWith("/")) return "an absolute path is not allowed";
  if (Buffer.byteLength(path) > SOURCE_LIMITS.pathBytes)
    return `its path has more than ${SOURCE_LIMITS.pathBytes} bytes`;
  for (const part of path.split("/")) {
    if (part === "") return "an empty part in its path is not allowed";
    if (part === "." || part === "..") return `"${part}" in its path is not allowed`;
    if (Buffer.byteLength(part) > SOURCE_LIMITS.partBytes)
      return `a part of its path has more than ${SOURCE_LIMITS.partBytes} bytes`;
  }
  return undefined;
}

function rootProblem(parts: string[], type: string): string | undefined {
  const root = parts[0] as string;
  if (!(SOURCE_PATHS as readonly string[]).includes(root))
    return "only ops.conf, workspace/ and templates/ can be pushed";
  const isFile = parts.length === 1 && type === "file";
  if (root === "ops.conf") return isFile ? undefined : "ops.conf must be a file";
  return isFile ? `${root} must be a directory` : undefined;
}
