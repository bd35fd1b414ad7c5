import { randomBytes } from "node:crypto";
import { AccessStore } from "../../auth/access-store.ts";
import { Guard, SecondFactor } from "../../auth/guard.ts";
import { SESSION_MS, type SessionCookie, Sessions, TOTP_COOKIE } from "../../auth/session.ts";
import { accessFile, serverLock } from "../../bucket/source/root.ts";
import { messageOf } from "../../core/errors.ts";
import type { Log } from "../access.ts";
import type { ServerConfig } from "../config.ts";

/** How long a TOTP session lasts where only tokens with a secret of their own have TOTP. */
const TOTP_SESSION_MS = 30 * 60_000;

/** Who may call: tokens, sessions, TOTP and the guard. The key that signs the cookies lives as long as the server. */
export async function signInOf(
  { root, token, tls, totp, earlier }: ServerConfig,
  { cookie, log, now }: { cookie: SessionCookie; log: Log; now: () => number },
) {
  const file = accessFile(root);
  const onTrouble = (error: unknown) => log(`warning: Cannot note in ${file} that a token is used: ${messageOf(error)}`);
  const access = await AccessStore.open(file, { now, onTrouble });
  const key = randomBytes(32);
  const browser = { cookie, lifetimeMs: SESSION_MS, secure: tls !== undefined };
  const verified = { cookie: TOTP_COOKIE, lifetimeMs: totp?.sessionMs ?? TOTP_SESSION_MS, secure: true } as const;
  const sessions = new Sessions(browser, key, now);
  const totpSessions = new Sessions(verified, key, now);
  const steps = `${serverLock(root).data}/totp-steps.json`;
  const onLoss = (error: unknown) => log(`warning: Cannot keep in ${steps} which TOTP codes were used: ${messageOf(error)}`);
  const kept = { file: steps, onTrouble: onLoss };
  const second = new SecondFactor(totpSessions, totp?.secret, now, kept);
  const guard = new Guard({ token, access: earlier ? undefined : access, sessions, totp: second, now });
  return { access, sessions, totpSessions, guard };
}
