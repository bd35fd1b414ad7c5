import { lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Layout, SOURCE_PATHS } from "../../lib/bucket/base/layout.ts";
import type { Revision } from "../../lib/bucket/source/revisions.ts";
import { acceptSource, receiveSource } from "../../lib/bucket/source/source.ts";
import { type TarInput, writeTar } from "../../lib/codec/archive/tar-write.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";

const never = new AbortController().signal;

/** A small source with every kind of thing in it: path to content; a path with a slash at its end is a folder. */
export const EXAMPLE: Readonly<Record<string, string>> = {
  "ops.conf": "ssh_user = agent\n",
  "workspace/": "",
  "workspace/workers.json": '[{"host": "10.0.0.1"}]\n',
  "workspace/jobs/web/manifest.json": "{}\n",
  "workspace/jobs/web/bin/start": "#!/bin/sh\nexit 0\n",
  "workspace/jobs/web/with blank & ünïcödé": "\0\x01 binary",
  "workspace/empty/": "",
  "templates/job.tpl": "{{ name }}\n",
};

/** The entries of an archive with these paths and contents; what lies below a bin/ is executable. */
export function entriesOf(source: Readonly<Record<string, string>>): TarInput[] {
  return Object.entries(source).map(([name, text]) =>
    name.endsWith("/")
      ? { path: name.slice(0, -1), mode: 0o755, size: 0 }
      : { path: name, mode: name.includes("bin/") ? 0o755 : 0o644, size: Buffer.byteLength(text), content: [Buffer.from(text)] },
  );
}

/** The whole archive of these paths and contents. */
export async function archiveBytes(source: Readonly<Record<string, string>>): Promise<Buffer> {
  return bytesOf(writeTar(entriesOf(source)));
}

/** Pushes these paths and contents to a bucket, as a client does. */
export async function push(layout: Layout, source: Readonly<Record<string, string>>): Promise<Revision> {
  const archive = writeTar(entriesOf(source));
  return acceptSource(layout, await receiveSource(layout, archive, false, never), uuidV7());
}

/** All bytes of a stream. */
export async function bytesOf(stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Writes these paths and contents below a folder. */
export function writeTree(root: string, source: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(source)) {
    const file = path.join(root, name);
    mkdirSync(name.endsWith("/") ? file : path.dirname(file), { recursive: true });
    if (!name.endsWith("/")) writeFileSync(file, text, { mode: name.includes("bin/") ? 0o755 : 0o644 });
  }
}

/** The source below a folder: each path with its content, executable files and folders marked. */
export function readTree(root: string): Record<string, string> {
  const found: Record<string, string> = {};
  const read = (name: string) => {
    const file = path.join(root, name);
    const status = lstatSync(file, { throwIfNoEntry: false });
    if (!status) return;
    if (!status.isDirectory()) {
      found[(status.mode & 0o100) === 0 ? name : `${name}*`] = readFileSync(file, "latin1");
      return;
    }
    found[`${name}/`] = "";
    for (const below of readdirSync(file).sort()) read(`${name}/${below}`);
  };
  for (const name of SOURCE_PATHS) read(name);
  return found;
}
