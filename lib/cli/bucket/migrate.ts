import { layoutOf } from "../../bucket/base/layout.ts";
import { carryOutMigration, migrationDiff, planMigration } from "../../bucket/earlier/migration.ts";
import { Failure } from "../../core/errors.ts";
import { exists, realPlace } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { diffColours, hasColours, printJson, toStderr, toStdout, visible } from "../base/terminal.ts";

/** `ops migrate [folder]`: shows, and with `--write` makes, the changes from the earlier form of a workspace to that of ops. */
export async function migrateCommand({ operands, switches }: Parsed): Promise<number> {
  const isWrite = switches.has("write");
  if (isWrite && switches.has("dry-run")) throw new Failure("usage", "--write and --dry-run do not go together");
  const layout = layoutOf(realPlace(operands[0] ?? "."));
  if (!(await exists(layout.workspace)))
    throw new Failure("failed", `Cannot migrate ${layout.root}: it has no folder workspace/; name the folder of the bucket`);
  const migration = await planMigration(layout);
  const { edits, renames, looks } = migration;
  if (!wantsJson({ switches })) toStdout(migrationDiff(migration), hasColours() ? diffColours : undefined);
  if (isWrite) await carryOutMigration(layout, migration);
  if (wantsJson({ switches })) {
    printJson({ written: isWrite, edits: edits.map(({ file }) => file), renames, looks });
    return EXIT.done;
  }
  for (const { file, line, message } of looks) toStdout(`${visible(`${file}:${line}: ${message}`)}\n`);
  const changes = edits.length + renames.length;
  const what = `${counted(edits.length, "edit")}, ${counted(renames.length, "rename")}`;
  if (changes === 0) toStderr("nothing to change\n");
  else toStderr(isWrite ? `changed: ${what}\n` : `would be changed: ${what}; --write changes them\n`);
  if (looks.length > 0) toStderr(`to look at: ${counted(looks.length, "line")}\n`);
  return EXIT.done;
}
