import { readFileSync } from "node:fs";
import path from "node:path";
import { Failure } from "../../core/errors.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { quote, record, string, valueIn } from "../../core/shape.ts";

/** Where the service is. */
export const SERVICE = {
  name: "ops.service",
  unit: "/etc/systemd/system/ops.service",
  token: "/etc/ops/token",
  root: "/var/lib/ops",
  user: "ops",
} as const;

/** What the service was told: the flags of `ops server install` with their values, by name. */
export type ServiceSettings = Readonly<Record<string, string>>;

/** The settings that the command line of the unit gets in a form of its own, or not at all. */
const PLACED_APART = ["user", "token-file", "totp-secret-file", "root"];
/** What root needs to run commands as another user, to end them, and to give that user files. */
const FOR_HOOK_USER = {
  capabilities: "CAP_CHOWN CAP_DAC_OVERRIDE CAP_KILL CAP_SETGID CAP_SETPCAP CAP_SETUID",
  calls: "SystemCallFilter=@chown @setuid capset\n",
};
const HOMES = ["/home", "/root", "/run/user"];

/**
 * The systemd unit of a server. `program` is the command line that starts ops. systemd hands the secrets over, so that
 * they stay files of root. Throws `usage` for a setting that systemd would read something else into.
 */
export function serviceUnit(settings: ServiceSettings, program: readonly string[]): string {
  const { root = SERVICE.root } = settings;
  const { "token-file": token = SERVICE.token, "totp-secret-file": totp, "tls-cert": cert, "tls-key": key } = settings;
  const own = Object.entries(settings).filter(([name]) => !PLACED_APART.includes(name));
  const words = [...program, "server", "--root", root, ...own.flatMap(([name, value]) => [`--${name}`, value])].map(unitWord);
  words.push("--token-file", `\${CREDENTIALS_DIRECTORY}/token`);
  if (totp !== undefined) words.push("--totp-secret-file", `\${CREDENTIALS_DIRECTORY}/totp`);
  const places = [...program, root, cert, key].filter((place) => place !== undefined);
  const isAtHome = places.some((place) => HOMES.some((home) => place.startsWith(`${home}/`)));
  const more = [
    ...(cert === undefined ? [] : ["# The server reads its certificate again.", 'ExecReload=/bin/sh -c "kill -HUP $MAINPID"']),
    ...(totp === undefined ? [] : [`LoadCredential=totp:${bareWord(totp)}`]),
    ...(root === SERVICE.root ? [] : [`ReadWritePaths=${unitWord(root)}`]),
  ];
  const isApart = settings["hook-user"] !== undefined;
  const values: ServiceSettings = {
    user: bareWord(usersOf(settings).server),
    capabilities: isApart ? FOR_HOOK_USER.capabilities : "",
    calls: isApart ? FOR_HOOK_USER.calls : "",
    start: words.join(" "),
    token: bareWord(token),
    more: more.map((line) => `${line}\n`).join(""),
    home: isAtHome ? "read-only" : "yes",
    settings: JSON.stringify(settings),
  };
  const template = readFileSync(path.join(PROGRAM_ROOT, "lib/cli/scripts/ops.service"), "utf8");
  return template.replace(/\{\{(\w+)\}\}/g, (_, name: string) => values[name] as string);
}

/**
 * Whom the server runs as, and the user that is made for it: with a user of hooks the server is root's. Throws `usage` where
 * another one is named too.
 */
export function usersOf({ user, "hook-user": hookUser }: ServiceSettings): { server: string; made: string } {
  if (hookUser === undefined) return { server: user ?? SERVICE.user, made: user ?? SERVICE.user };
  if (user === undefined || user === "root") return { server: "root", made: hookUser };
  throw new Failure("usage", "--hook-user needs a server that runs as root: leave --user out");
}

/** The settings of a unit that {@link serviceUnit} made; undefined for a text that it did not make. */
export function settingsOfUnit(unit: string): ServiceSettings | undefined {
  const [, json = ""] = /^\[X-Ops\]\nSettings=(.*)$/m.exec(unit) ?? [];
  return valueIn(record(string()), json);
}

/** The settings with full paths of files: the unit starts in another folder. */
export function settledSettings(given: ReadonlyMap<string, string>): ServiceSettings {
  const isPlace = (name: string) => name === "root" || /-(?:file|cert|key)$/.test(name);
  return Object.fromEntries([...given].map(([name, value]) => [name, isPlace(name) ? path.resolve(value) : value]));
}

/** The word of a setting that takes no quotes. */
function bareWord(text: string): string {
  const word = unitWord(text);
  if (word !== text) throw new Failure("usage", `${quote(text)} cannot stand in a systemd unit: give it without blanks, ' and ;`);
  return word;
}

/** A word of a unit's line; systemd would read more than a blank into these characters. */
function unitWord(text: string): string {
  if (text === "" || /["\\$%\p{C}]/u.test(text))
    throw new Failure(
      "usage",
      `${quote(text)} cannot stand in a systemd unit: give it without ", \\, $, % and control characters`,
    );
  return /\s|'|;/.test(text) ? `"${text}"` : text;
}
