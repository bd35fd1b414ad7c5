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
