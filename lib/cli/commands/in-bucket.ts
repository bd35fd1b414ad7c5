import { BUCKET_DIR, bucketDir, type CommandRow, type Parsed } from "../base/flags.ts";
import type { BucketAccess } from "../state/access.ts";

/** What a command does in a bucket, be it here or on a server. */
type BucketWork = (bucket: BucketAccess, input: Parsed) => Promise<number>;

/** A command with its work, whose module is loaded when the command runs. */
interface BucketCommand extends Omit<CommandRow, "run" | "remote"> {
  work(): Promise<BucketWork>;
}

/** A command that does the same in a bucket here and on a server. */
export function inBucket({ work, flags = [], ...command }: BucketCommand): CommandRow {
  return {
    ...command,
    flags: [BUCKET_DIR, ...flags],
    async run(input) {
      const { accessHere } = await import("../state/access.ts");
      return (await work())(await accessHere(bucketDir(input)), input);
    },
    async remote(input, target) {
      const { accessOn } = await import("../remote/access.ts");
      return (await work())(await accessOn(target), input);
    },
  };
}
