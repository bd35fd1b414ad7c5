import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { COMMANDS } from "../../lib/cli/main.ts";
import { commandReference } from "../../scripts/cli-reference.ts";

test("docs/cli.md is what the table of commands says; `npm run reference` writes it anew", () => {
  const written = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");
  assert.equal(written, commandReference(COMMANDS));
});

test("every command has a summary, every flag a help text without a final period", () => {
  for (const command of COMMANDS)
    for (const text of [command.summary, ...command.flags.map((flag) => flag.help)])
      assert.match(text, /^[A-Z(].*[^.]$/, `${command.name}: ${text}`);
});

/** Commands without `--json`, and what they print. */
const NO_JSON: Readonly<Record<string, string>> = {
  "cat prometheus get": "a file",
  completion: "a script",
  "kv export": "JSON lines",
  schema: "JSON",
  serve: "its log",
  server: "its log, see --log-format",
};

test("every command that prints data or does something takes --json", () => {
  const without = COMMANDS.filter(({ hidden, flags }) => !hidden && !flags.some(({ name }) => name === "json"));
  assert.deepEqual(without.map(({ name }) => name).sort(), Object.keys(NO_JSON).sort());
});

test("docs/client.md tells the JSON of every command that starts no run", () => {
  const page = readFileSync(new URL("../../docs/client.md", import.meta.url), "utf8");
  const [, table = ""] = page.split("\n## JSON\n");
  const told = table
    .split("\n")
    .flatMap((line) => [...(line.split("|")[1] ?? "").matchAll(/`([^`]+)`/g)].map(([, name]) => name));
  const isTold = (name: string) => {
    const [group = "", ...rest] = name.split(" ");
    return told.includes(name) || told.includes(`${group} …`) || (rest.length > 0 && told.includes(rest.join(" ")));
  };
  const others = COMMANDS.filter(
    ({ hidden, flags, name }) => !hidden && !flags.some((one) => one.name === "wait") && !(name in NO_JSON),
  );
  assert.deepEqual(
    others.map(({ name }) => name).filter((name) => !isTold(name)),
    [],
  );
});
