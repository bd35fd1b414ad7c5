import type { FileHandle } from "node:fs/promises";
import { Failure } from "../core/errors.ts";
import type { Answer, HttpRequest } from "./message.ts";

/** Bytes that clients may ask for as a whole or in part. */
export interface Download {
  type: string;
  sizeBytes: number;
  /** Letters, digits and dashes that differ whenever the bytes differ. */
  version: string;
  /** The bytes from `start` up to `end`, which is not among them; throws when there are fewer. */
  read(start: number, end: number): AsyncIterable<Uint8Array>;
  /** Called once, whatever was read. */
  close(): Promise<void>;
}

const DOWNLOAD_PIECE_BYTES = 64 * 1024;

/** A regular file as it is now. A later change of the file ends the download. The handle is closed with the download. */
export async function fileDownload(type: string, handle: FileHandle): Promise<Download> {
  const { dev, ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
  return {
    type,
    sizeBytes: Number(size),
    version: [dev, ino, size, mtimeNs, ctimeNs].map((part) => part.toString(36)).join("-"),
    read: (start, end) => filePieces(handle, start, end),
    close: () => handle.close(),
  };
}

/** Bytes in memory. */
export function bytesDownload(type: string, bytes: Uint8Array, version: string): Download {
  return {
    type,
    sizeBytes: bytes.length,
    version,
    async *read(start, end) {
      yield bytes.subarray(start, end);
    },
    close: async () => {},
  };
}

async function* filePieces(handle: FileHandle, start: number, end: number): AsyncGenerator<Uint8Array> {
  for (let at = start; at < end; ) {
    const length = Math.min(DOWNLOAD_PIECE_BYTES, end - at);
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(length), 0, length, at);
    if (bytesRead === 0) throw new Error("the file was cut while it was sent");
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}

/**
 * The answer to a GET of a download (RFC 9110): 304 where the client has this version, 206 for one range, else 200 with
 * all bytes. All bytes also answer several ranges, a malformed range, and a range whose `If-Range` is not the present
 * version. Throws `range_not_satisfiable` (416). Closes the download in any case.
 */
export async function downloadAnswer(request: HttpRequest, download: Download): Promise<Answer> {
  const etag = `"${download.version}"`;
  const headers = { "Content-Type": download.type, ETag: etag, "Accept-Ranges": "bytes" };
  if (isKnown(String(request.headers["if-none-match"] ?? ""), etag)) {
    await download.close();
    return { status: 304, headers: { ETag: etag } };
  }
  const { sizeBytes } = download;
  const range = isRangeWanted(request, etag) ? rangeOf(String(request.headers.range), sizeBytes) : undefined;
  if (range === "none") {
    await download.close();
    const details = { size_bytes: sizeBytes };
    throw new Failure("range_not_satisfiable", `the range lies beyond the ${sizeBytes} bytes`, { details });
  }
  const [start, end] = range ?? [0, sizeBytes];
  const body = { length: end - start, read: () => download.read(start, end), close: () => download.close() };
  if (!range) return { status: 200, headers, body };
  const place = `bytes ${start}-${end - 1}/${sizeBytes}`;
  return { status: 206, headers: { ...headers, "Content-Range": place }, body };
}

/** True where `If-None-Match` names the tag. The comparison is weak: a tag that a proxy has marked as weak counts too. */
export function isKnown(known: string, etag: string): boolean {
  return known.split(",").some((one) => one.trim() === "*" || one.trim().replace(/^W\//, "") === etag);
}

/** Ranges are for GET alone. `If-Range` compares strongly; a date never equals the version. */
function isRangeWanted({ method, headers }: HttpRequest, etag: string): boolean {
  const condition = headers["if-range"];
  return method === "GET" && headers.range !== undefined && (condition === undefined || condition === etag);
}

/** Begin and end (exclusive) of a range, `none` for a range beyond the bytes, undefined for anything but one range. */
function rangeOf(text: string, sizeBytes: number): [number, number] | "none" | undefined {
  const [, first = "", last = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(text.trim()) ?? [];
  if (first === "" && last === "") return undefined;
  if (first === "") return last === "0" || sizeBytes === 0 ? "none" : [Math.max(0, sizeBytes - Number(last)), sizeBytes];
  const [start, end] = [Number(first), last === "" ? sizeBytes : Math.min(Number(last) + 1, sizeBytes)];
  if (last !== "" && Number(last) < start) return undefined;
  return start >= sizeBytes ? "none" : [start, end];
}
