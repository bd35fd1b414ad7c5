import { layoutOf } from "../../bucket/base/layout.ts";
import { Launcher } from "../../core/spawn.ts";
import { examine } from "../../operation/tend/doctor.ts";
import { FINDING_GRADES, type Finding } from "../../operation/tend/doctor-bucket.ts";
import { EXIT } from "../base/flags.ts";
import { stopRequest } from "../base/stop.ts";
import { jsonText, visible } from "../base/table.ts";
import { toStdout } from "../base/terminal.ts";
import { withoutServerVariables } from "./bucket.ts";

/** `ops doctor`. Answers the exit code: 0, or 1 where there is a problem. */
export async function doctorCommand(dir: string, asJson: boolean): Promise<number> {
  using stop = stopRequest();
  const launcher = new Launcher(withoutServerVariables(process.env));
  void stop.insisted.then(() => launcher.endAll(0));
  const findings = await examine({ layout: layoutOf(dir), launcher, signal: stop.signal });
  const worst = Math.max(...findings.map(({ grade }) => FINDING_GRADES.indexOf(grade)));
  toStdout(asJson ? jsonText({ grade: FINDING_GRADES[worst], findings }) : report(findings));
  return FINDING_GRADES[worst] === "problem" ? EXIT.failed : EXIT.done;
}

function report(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const places = Map.groupBy(findings, ({ where }) => where);
  const line = ({ grade, check, message, advice }: Finding) => {
    const told = `  ${grade.padEnd("warning".length)}  ${check.padEnd(width)}  ${visible(message)}\n`;
    return advice === null ? told : `${told}${" ".repeat(width + 13)}${visible(advice)}\n`;
  };
  const parts = [...places].map(([where, all]) => `${visible(where)}\n${all.map(line).join("")}`);
  const count = (grade: Finding["grade"]) => findings.filter((one) => one.grade === grade).length;
  return `${parts.join("")}${count("problem")} problems, ${count("warning")} warnings, ${count("ok")} ok\n`;
}
