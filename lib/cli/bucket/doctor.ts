import { layoutOf } from "../../bucket/base/layout.ts";
import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { Launcher } from "../../core/spawn.ts";
import { examine } from "../../operation/tend/doctor.ts";
import { FINDING_GRADES, type Finding } from "../../operation/tend/doctor-bucket.ts";
import { bucketDir, EXIT, type Parsed, withoutServerVariables } from "../base/flags.ts";
import { printAnswer, stopRequest, visible } from "../base/terminal.ts";
import { SERVICE, type ServiceSettings, settledSettings } from "../server/unit.ts";

/** `ops doctor`, of a bucket or of a server. Answers the exit code: 0, or 1 where there is a problem. */
export async function doctorCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const launcher = new Launcher(withoutServerVariables(process.env));
  void stop.insisted.then(() => launcher.endAll(0));
  const { "bucket-dir": bucket, ...given } = settledSettings(input.values);
  const ofServer = input.switches.has("server");
  if (!ofServer && Object.keys(given).length > 0)
    throw new Failure("usage", `--${Object.keys(given)[0]} goes with --server (see \`ops doctor --help\`)`);
  if (ofServer && bucket !== undefined)
    throw new Failure("usage", "--bucket-dir does not go with --server (see `ops doctor --help`)");
  const findings = ofServer
    ? await examineService(given, launcher, stop.signal)
    : await examine({ layout: layoutOf(bucketDir(input)), launcher, signal: stop.signal });
  return showFindings(findings, input);
}

/** Shows what was found. Answers the exit code: 0, or 1 where there is a problem. */
export function showFindings(findings: readonly Finding[], input: Parsed): number {
  const worst = Math.max(...findings.map(({ grade }) => FINDING_GRADES.indexOf(grade)));
  printAnswer(input, { grade: FINDING_GRADES[worst], findings }, () => doctorReport(findings));
  return FINDING_GRADES[worst] === "problem" ? EXIT.failed : EXIT.done;
}

/** Examines what the flags name; without `--root` also what the service of this machine was told. */
async function examineService(given: ServiceSettings, launcher: Launcher, signal: AbortSignal): Promise<Finding[]> {
  const { installedUnit } = await import("../server/install.ts");
  const { examineServer } = await import("../server/examine.ts");
  const service = given.root === undefined ? (await installedUnit())?.settings : undefined;
  const known: ServiceSettings = service === undefined ? {} : { root: SERVICE.root, "token-file": SERVICE.token };
  const settings = { ...known, ...service, ...given };
  const root = settings.root ?? process.env.OPS_SERVE_ROOT ?? "";
  if (root === "") throw new Failure("usage", "no root: give --root, or set OPS_SERVE_ROOT to the folder of the buckets");
  return await examineServer(realPlace(root), settings, launcher, signal);
}

function doctorReport(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const places = Map.groupBy(findings, ({ where }) => where);
  const line = ({ grade, check, message, advice }: Finding) => {
    const told = `  ${grade.padEnd("warning".length)}  ${check.padEnd(width)}  ${visible(message)}\n`;
    return advice === null ? told : `${told}${" ".repeat(width + 13)}${visible(advice)}\n`;
  };
  const parts = [...places].map(([where, all]) => `${visible(where)}\n${all.map(line).join("")}`);
  const count = (grade: Finding["grade"]) => findings.filter((one) => one.grade === grade).length;
  return `${parts.join("")}${counted(count("problem"), "problem")}, ${counted(count("warning"), "warning")}, ${count("ok")} ok\n`;
}
