import { type CommandRow, type Flag, type Operand, SERVER_FLAGS } from "../base/flags.ts";
import { STARTING } from "../base/start-flags.ts";

const SECRET_FILE = { name: "totp-secret-file", value: "FILE" };
const ISSUER: Flag = { name: "totp-issuer", value: "NAME", help: "The issuer in the authenticator app (default ops)" };

const BASE_URL = {
  name: "base_url",
  help: "The server, for example https://ops.example:9090 (default: as --server)",
  optional: true,
};
const OF_SERVER = SERVER_FLAGS.filter(({ name }) => name !== "local");

const TOKENS: Flag[] = [
  {
    name: "token",
    value: "TOKEN",
    help: "API token; other users can read it in the process list for a moment: prefer --token-file",
  },
  { name: "token-file", value: "FILE", help: "File that holds the API token (or set OPS_SERVE_TOKEN)" },
];
const ROOT: Flag = { name: "root", value: "DIR", help: "Folder of the buckets (or OPS_SERVE_ROOT); made if it is missing" };
const LISTENING: Flag[] = [
  { name: "addr", value: "HOST:PORT", help: "Listen address (default 127.0.0.1:9090)" },
  { name: "tls-cert", value: "FILE", help: "PEM certificate; needed unless the address is a loopback one" },
  { name: "tls-key", value: "FILE", help: "PEM key of the certificate" },
];
/** The flags of a server besides its root and its secrets. */
const SERVING: Flag[] = [
  ...LISTENING,
  { name: "totp-session-ttl", value: "TIME", help: "How long a verified code counts, such as 90s or 1h30m (default 30m)" },
  ISSUER,
  {
    name: "audit-sink",
    value: "COMMAND",
    help: "A command for sh that gets each line of the audit on its stdin, to keep a copy elsewhere",
  },
  {
    name: "heartbeat-url-file",
    value: "FILE",
    help: "File of an address that is called every minute, as long as the server lives; https, or http on this host",
  },
  {
    name: "hook-user",
    value: "NAME",
    help: "Run hook scripts and the commands of local workers as this user; only for a server that runs as root",
  },
  { name: "log-format", value: "FORMAT", choices: ["text", "json"], help: "Form of the log: text (default) or json" },
];

/** The bucket that a command of this group names. */
const BUCKET: Operand = { name: "bucket", help: "Its name, project/name or id" };
const LABEL: Operand = { name: "label", help: "PROJECT/NAME, for example shop/live" };

const LIST_BUCKETS: CommandRow = {
  name: "buckets list",
  summary: "Show the buckets of a server",
  remote: async (input, target) => (await import("../remote/buckets.ts")).listBuckets(input, target),
};

/** Commands about the buckets of a server. */
const BUCKET_COMMANDS: readonly CommandRow[] = [
  { ...LIST_BUCKETS, name: "buckets" },
  LIST_BUCKETS,
  {
    name: "buckets create",
    summary: "Make a bucket on a server, and print its id",
    operands: [LABEL],
    remote: async (input, target) => (await import("../remote/buckets.ts")).createBucket(input, target),
  },
  {
    name: "buckets rename",
    summary: "Give a bucket of a server another project and name",
    operands: [BUCKET, LABEL],
    remote: async (input, target) => (await import("../remote/buckets.ts")).renameBucket(input, target),
  },
  {
    name: "buckets set",
    summary: "Set how many others must approve a deploy, a rollback, a hook or a command in a bucket of a server",
    operands: [BUCKET],
    flags: [{ name: "approvals", value: "N", choices: ["0", "1", "2"], help: "How many: 0, 1 or 2" }],
    remote: async (input, target) => (await import("../remote/buckets.ts")).setBucket(input, target),
  },
  {
    name: "buckets delete",
    summary: "Delete a bucket of a server with all it holds; nothing is done on its workers",
    operands: [BUCKET],
    flags: [{ name: "yes", help: "Do not ask for its name" }],
    remote: async (input, target) => (await import("../remote/buckets.ts")).deleteBucket(input, target),
  },
  {
    name: "buckets init",
    summary: "Make or upgrade the database of a bucket of a server",
    operands: [{ ...BUCKET, help: `${BUCKET.help} (default: as --bucket)`, optional: true }],
    remote: async (input, target) => (await import("../remote/buckets.ts")).initBucket(input, target),
  },
  {
    name: "open",
    summary: "Print the address of a page of the console: of a bucket, or of something in it",
    operands: [
      {
        name: "what",
        help: "bucket (default), run, job, worker or revision",
        choices: ["bucket", "run", "job", "worker", "revision"],
        optional: true,
      },
      { name: "name", help: "Its name or id (default: the list of all)", optional: true },
    ],
    remote: async (input, target) => (await import("../remote/buckets.ts")).openCommand(input, target),
  },
];

/** The commands of the server, of its clients and of its own processes. */
export const SERVER_COMMANDS: readonly CommandRow[] = [
  {
    name: "server",
    summary: "Serve the HTTP API and the console for all buckets below a root",
    flags: [
      ROOT,
      ...TOKENS,
      {
        ...SECRET_FILE,
        help: "Require TOTP codes too; the file that server totp-enroll writes (or set OPS_SERVE_TOTP_SECRET_FILE); needs TLS",
      },
      ...SERVING,
    ],
    noJson: true,
    run: async (input) => (await import("../server/server.ts")).serverCommand(input),
  },
  {
    name: "server migrate",
    summary: "Turn the environments below the root of ops serve into buckets, with the same ids; only while no server has it",
    operands: [{ name: "root", help: "Folder of the environments" }],
    flags: [{ name: "dry-run", help: "Only say what would change" }],
    run: async (input) => (await import("../server/migrate.ts")).migrateRootCommand(input),
  },
  {
    name: "serve",
    summary: "Serve the earlier variant of the HTTP API, with environments in place of buckets; for new work: server",
    flags: [{ ...ROOT, help: "Folder of the environments (or OPS_SERVE_ROOT); made if it is missing" }, ...TOKENS, ...LISTENING],
    noJson: true,
    run: async (input) => (await import("../server/server.ts")).serverCommand(input, true),
  },
  {
    name: "server install",
    summary: "Make the server a service of systemd: its user, token, root and unit; starts nothing without --now",
    flags: [
      { name: "user", value: "NAME", help: "The user that the server runs as, made if it is missing (default ops)" },
      { name: "root", value: "DIR", help: "Folder of the buckets (default /var/lib/ops)" },
      { name: "token-file", value: "FILE", help: "File of the API token, made if it is missing (default /etc/ops/token)" },
      { ...SECRET_FILE, help: "Require TOTP codes too; the file that server totp-enroll writes; needs TLS" },
      ...SERVING,
      { name: "now", help: "Start the server too, or start it again" },
      { name: "print", help: "Only print the steps and the unit, as text" },
    ],
    run: async (input) => (await import("../server/install.ts")).installCommand(input),
  },
  {
    name: "server uninstall",
    summary: "Stop and remove the service of systemd; the buckets, the token and the user stay",
    run: async (input) => (await import("../server/install.ts")).uninstallCommand(input),
  },
  {
    name: "server totp-enroll",
    summary: "Make the TOTP secret of a server, or show the existing one, for an authenticator app",
    flags: [
      { ...SECRET_FILE, help: "File of the secret, made with mode 0600 if it is missing (default ./server-totp.secret)" },
      ISSUER,
      { name: "totp-account", value: "NAME", help: "The account in the app (default ops-server@<hostname>)" },
      { name: "json", help: "Print JSON instead of text and QR code" },
    ],
    run: async (input) => (await import("../server/totp-enroll.ts")).totpEnrollCommand(input),
  },
  {
    name: "push",
    summary: "Send the source of a bucket to a server, which then builds it",
    operands: [BASE_URL],
    flags: [
      { name: "dir", value: "DIR", help: "The local bucket (default: the current folder)" },
      { name: "note", value: "TEXT", help: "Why the source changes: one line of at most 200 characters" },
      ...STARTING,
      ...OF_SERVER,
    ],
    run: async (input) => (await import("../remote/push.ts")).pushCommand(input),
  },
  {
    name: "push rollback",
    summary: "Roll the source of a bucket on a server back to a revision, which the server then builds",
    operands: [BASE_URL],
    flags: [
      {
        name: "revision",
        value: "ID",
        help: "The revision; the beginning or end of its id is enough (default: the last successful one)",
      },
      ...STARTING,
      ...OF_SERVER,
    ],
    run: async (input) => (await import("../remote/push.ts")).rollbackCommand(input),
  },
  {
    name: "login",
    summary: "Sign in to a server: exchange the API token for a session that later commands use",
    operands: [{ ...BASE_URL, help: "The server, for example https://ops.example:9090 (default: OPS_SERVER)" }],
    flags: [
      { name: "server", value: "URL", help: "The server, in place of base_url (or OPS_SERVER); never one that ops.conf names" },
      { name: "token-file", value: "FILE", help: "File of the API token (or OPS_SERVE_TOKEN; default: typed unseen, or stdin)" },
      { name: "ca-file", value: "FILE", help: "PEM certificates to trust besides the system's, kept for later commands" },
      ...OF_SERVER.filter(({ name }) => name === "totp"),
    ],
    run: async (input) => (await import("../remote/login.ts")).loginCommand(input),
  },
  {
    name: "logout",
    summary: "End the session with a server, and forget it",
    operands: [BASE_URL],
    flags: OF_SERVER.filter(({ name }) => name === "server" || name === "ca-file"),
    run: async (input) => (await import("../remote/login.ts")).logoutCommand(input),
  },
  ...BUCKET_COMMANDS,
  {
    name: "worker run",
    summary: "Carry out one run for a server",
    hidden: true,
    noJson: true,
    run: async () => (await import("../server/worker.ts")).runWorker(),
  },
];
