import { type ControlKind, JOB_CONTROL } from "../../run/protocol.ts";
import { BUCKET_DIR, bucketDir, type Command, listOf } from "../base/flags.ts";
import { runCommand } from "../bucket/run-command.ts";

/** Commands about jobs. */
export const JOB_COMMANDS: readonly Command[] = [
  runCommand("health_check", { name: "health_check" }),
  ...(Object.keys(JOB_CONTROL) as ControlKind[]).map((kind) =>
    runCommand(kind, {
      name: kind.replace("_", " "),
      // A retry says it itself.
      operands: [{ name: "jobs", help: "The job, or several with commas between them", optional: true }],
    }),
  ),
  {
    name: "job create",
    summary: "Make a new job in the workspace, from a folder of templates/ or with a Makefile to fill in",
    operands: [{ name: "job", help: "Its name" }],
    flags: [
      BUCKET_DIR,
      { name: "selectors", short: "s", value: "A,B", help: "Labels that its workers carry (default: its name)" },
      { name: "template", value: "NAME", help: "The folder of templates/ to copy" },
    ],
    async run(input) {
      const { createJobCommand } = await import("../bucket/job-create.ts");
      const [name = ""] = input.operands;
      return createJobCommand(bucketDir(input), {
        name,
        selectors: listOf(input, "selectors"),
        template: input.values.get("template"),
      });
    },
  },
];
