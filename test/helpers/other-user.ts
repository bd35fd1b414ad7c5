import type { OtherUser } from "../../lib/core/spawn.ts";

/** A user that every machine has, and who may do nothing. */
export const NOBODY: OtherUser = { name: "nobody", uid: 65_534, gid: 65_534, home: "/" };

/** For `skip` of a test: only root can become another user. */
export const NEEDS_ROOT = process.getuid?.() !== 0 && "only root can run commands as another user";
