// A sink of the audit whose command is played by the test.
import path from "node:path";
import type { TestContext } from "node:test";
import type { AuditSpot } from "../../lib/audit/files.ts";
import type { AuditLog } from "../../lib/audit/log.ts";
import { AuditSink } from "../../lib/audit/sink.ts";
import type { Launcher } from "../../lib/core/spawn.ts";
import { auditBelow } from "./audit-log.ts";
import { temporaryFolder } from "./temporary.ts";

/** How a command has ended. */
export interface Exit {
  exitCode: number | null;
  signal: string | null;
}

/** One life of a command that takes what it is given. */
export interface Life {
  pieces: string[];
  numbers: () => number[];
  exit: (exit: Partial<Exit>) => void;
  graces: number[];
  isInputEnded: boolean;
  /** Goes on when its input ends, until it is ended. */
  isStubborn: boolean;
}

/** A sink whose command is played by the test. */
export function sinking(t: TestContext, now?: () => number, more: { pauseMs?: number } = { pauseMs: 1 }) {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root, now);
  const told: string[] = [];
  const given: unknown[] = [];
  const lives: Life[] = [];
  /** Whether the command refuses what it is given, or does not take it, and how often it was given something. */
  const far = { isDeaf: false, isStuck: false, offers: 0 };
  const start = async (...args: unknown[]) => {
    given.push(args);
    const { promise: ended, resolve } = Promise.withResolvers<Exit>();
    const exit = (how: Partial<Exit>) => resolve({ exitCode: null, signal: null, ...how });
    const pieces: string[] = [];
    const numbers = () => pieces.flatMap((piece) => piece.trimEnd().split("\n")).map((line) => JSON.parse(line).n);
    const life: Life = { pieces, numbers, exit, graces: [], isInputEnded: false, isStubborn: false };
    lives.push(life);
    const stdin = {
      write: (piece: Buffer, done: (error?: Error) => void) => {
        far.offers++;
        if (far.isStuck) return;
        if (far.isDeaf) return done(new Error("EPIPE"));
        pieces.push(piece.toString());
        done();
      },
      end: () => {
        life.isInputEnded = true;
        if (!life.isStubborn) exit({ exitCode: 0 });
      },
    };
    const end = async (graceMs: number) => {
      life.graces.push(graceMs);
      exit({ signal: "SIGTERM" });
    };
    return { stdin, ended, end };
  };
  const launcher = { start } as unknown as Launcher;
  const sink = new AuditSink({ command: "keep", audit: log, launcher, tell: (line) => told.push(line), ...more });
  /** Ends the sink, and the command at once: one that has failed before would have to live for a second. */
  const close = async () => {
    const closed = sink.close();
    for (const life of lives) life.exit({ exitCode: 0 });
    await closed;
  };
  t.after(close);
  return { root, log, sink, close, told, given, lives, far };
}

/** Writes lines of so many characters, one after the other, and answers where each of them ends. */
export async function writeLines(log: AuditLog, count: number, characters: number): Promise<AuditSpot[]> {
  const ends: AuditSpot[] = [];
  for (let index = 0; index < count; index++) {
    await log.append({ what: "change", reason: "x".repeat(characters) });
    ends.push({ ...(log.written as AuditSpot) });
  }
  return ends;
}

/** Before the first line of all. */
export const BEGIN: AuditSpot = { file: "", size: 0 };
/** What is told of a command that fails. */
export const warning = (why: string) => `warning: the command of --audit-sink fails, and no copy of the audit is kept: ${why}`;
