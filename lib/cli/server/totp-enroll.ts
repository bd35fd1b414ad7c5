import { hostname } from "node:os";
import { enrolTotpSecret } from "../../auth/totp.ts";
import { base32Encode, otpauthUri } from "../../codec/crypto/totp.ts";
import { asciiQr, qrCode, terminalQr } from "../../codec/qr.ts";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { EXIT, type Parsed } from "../base/flags.ts";
import { toStderr } from "../base/terminal.ts";

const DEFAULT_FILE = "./server-totp.secret";
/** The most characters of a label in the URI: a QR code then holds the URI with a secret of any length. */
const LABEL_LENGTH = 200;

/** `ops server totp-enroll`: makes a TOTP secret, or shows the existing one, for an authenticator app. */
export async function totpEnrollCommand(input: Parsed): Promise<number> {
  const issuer = label(input, "totp-issuer", "ops");
  const account = label(input, "totp-account", `ops-server@${hostname()}`);
  const file = input.values.get("totp-secret-file") ?? DEFAULT_FILE;
  const { secret, created } = await enrolTotpSecret(file);
  const uri = otpauthUri({ issuer, account, secret });
  const shown = { issuer, account, secret: base32Encode(secret), uri };
  const asJson = input.switches.has("json");
  toStderr(`${created ? `wrote a new secret to ${file}` : `the secret is that of ${file}`}\n`);
  process.stdout.write(asJson ? `${JSON.stringify(shown)}\n` : `${text(shown)}\n${qr(uri)}`);
  return EXIT.done;
}

function label(input: Parsed, flag: string, standard: string): string {
  const value = input.values.get(flag) ?? standard;
  const isLine = /^[^\u0000-\u001f\u007f:]+$/.test(value) && value.isWellFormed();
  if (isLine && encodeURIComponent(value).length <= LABEL_LENGTH) return value;
  throw new Failure("usage", `--${flag} ${quote(value)}: expected a short line of text without a colon`);
}

function text(shown: Record<string, string>): string {
  return Object.entries(shown)
    .map(([name, value]) => `${name.padEnd(8)} ${value}\n`)
    .join("");
}

function qr(uri: string): string {
  const code = qrCode(uri);
  return process.stdout.isTTY ? terminalQr(code, !process.env.NO_COLOR) : asciiQr(code);
}
