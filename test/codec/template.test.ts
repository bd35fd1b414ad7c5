import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import { isTrue } from "../../lib/codec/template/builtins.ts";
import { renderTemplate } from "../../lib/codec/template/exec.ts";
import { type TemplateFunction, type TemplateValue, typed } from "../../lib/codec/template/funcs.ts";
import { Failure } from "../../lib/core/errors.ts";

/** What Go made of a template, in the data that `AD` stands for there; errors start with their phase. */
interface GoCase {
  Template: string;
  Output: string;
  Error: string;
}

const KV: Record<string, string> = { a: "1", mem: "8192", list: "x,y,z" };

const FUNCTIONS: Record<string, TemplateFunction> = {
  get: typed(["string", "string"], (namespace, key) => {
    if (namespace !== "ns") throw new Error(`${namespace} namespace is not available for job j`);
    const value = KV[key];
    if (value === undefined) throw new Error("key not found or deleted");
    return value;
  }),
  getOptional: typed(["string", "string"], (_namespace, key) => KV[key] ?? ""),
};

const ALLOCATION: TemplateValue = {
  AllocationID: "id1",
  Job: "j",
  CurrentVersion: "1.0.0",
  NewVersion: "1.1.0",
  BucketID: "b1",
  WorkerID: "w1",
  WorkerIP: "10.0.0.1",
  Labels: ["api", "worker"],
  UpdateSeq: 7n,
  BucketPath: "/opt/worker/b1",
  JobPath: "/opt/worker/b1/jobs/j",
};

const MIXED = [1n, "two", null, 2.5];
const DOT: TemplateValue = {
  Job: "j",
  Labels: ["api", "worker"],
  UpdateSeq: 7n,
  F: 2.5,
  B: true,
  M: { k: "v", nil: null, m: { x: 1n } },
  L: [...MIXED, true, ["p"]],
  E: "",
  N: null,
  Z: [],
  Neg: -5n,
};

function render(text: string, dot: TemplateValue = DOT, functions = FUNCTIONS): string {
  return renderTemplate("t", text, dot, functions);
}

function failureOf(text: string, dot?: TemplateValue, functions?: Record<string, TemplateFunction>): string {
  try {
    render(text, dot, functions);
  } catch (error) {
    assert.ok(error instanceof Failure, `${text}: ${error}`);
    assert.equal(error.code, "failed");
    return error.message.replace("template: t:", "").replace('executing "t" ', "");
  }
  return assert.fail(`${text} was rendered`);
}

const FIXTURE = path.join(import.meta.dirname, "../fixtures/go-semantics.json");
const goCases: GoCase[] = JSON.parse(readFileSync(FIXTURE, "utf8")).templates;

test("every template case of the Go implementation gives the same output or error", () => {
  for (const { Template, Output, Error: wanted } of goCases) {
    if (wanted === "") {
      assert.equal(renderTemplate("template", Template, ALLOCATION, FUNCTIONS), Output, Template);
      continue;
    }
    const [phase, text] = [wanted.slice(0, 4), wanted.slice(wanted.indexOf(": ") + 2)];
    // Go names the type of its data; of a parse error it tells the line only, and of some says more than once where.
    const reason = text.replace("main.AD", "struct").replace(/^template: template:1: (?:template: )?/, "");
    assert.throws(
      () => renderTemplate("template", Template, ALLOCATION, FUNCTIONS),
      ({ message }: Failure) =>
        phase === "exec" ? message === reason : /^template: template:1:\d+: /.test(message) && message.includes(reason),
      `${Template} should fail: ${wanted}`,
    );
  }
});

/** Checked against Go 1.19 itself, but for the group of what came later. */
const OUTPUTS: Record<string, [template: string, output: string][]> = {
  printf: [
    [`{{printf "%5d|%-5d|%05d|%+d|% d" 42 42 42 42 42}}`, "   42|42   |00042|+42| 42"],
    [`{{printf "%05d|%+05d|% 05d|%-05d|%.3d|%8.3d|%08.3d" -42 42 42 42 7 7 7}}`, "-0042|+0042| 0042|42   |007|     007|     007"],
    [`{{printf "%b %o %x %X %#b %#o %#x %#X" 5 8 255 255 5 8 255 255}}`, "101 10 ff FF 0b101 010 0xff 0XFF"],
    [`{{printf "%x %X %d %b" -255 -255 -9223372036854775808 -2}}`, "-ff -FF -9223372036854775808 -10"],
    [`{{printf "%c|%q|%c|%q" 233 233 1114112 10}}`, String.raw`é|'é'|�|'\n'`],
    [`{{printf "%5c|%-5c|%U|%8U" 65 65 65 128512}}`, "    A|A    |U+0041| U+1F600"],
    [
      `{{printf "%s|%10s|%-10s|%.2s|%5.1s|%05s" "héllo" "héllo" "héllo" "héllo" "héllo" "ab"}}`,
      "héllo|     héllo|héllo     |hé|    h|000ab",
    ],
    [
      String.raw`{{printf "%q %+q %#q %x %X %.2x" "a\"é\n" "a\"é\n" "a\\b" "hé" "hé" "hé"}}`,
      '"a\\"é\\n" "a\\"\\u00e9\\n" `a\\b` 68c3a9 68C3A9 68c3',
    ],
    [String.raw`{{printf "%q" "\a\b\f\n\r\t\v\\\x7f\u200b\U000e0001"}}`, String.raw`"\a\b\f\n\r\t\v\\\x7f\u200b\U000e0001"`],
    [`{{printf "[%s|%v|%.0s|%.0d]" "" "" "a" 0}}`, "[|||]"],
    [
      String.raw`{{printf "%q %+q" "\u0080\uffff\U0001ffff" "\u0080\uffff\U00010000"}}`,
      String.raw`"\u0080\uffff\U0001ffff" "\u0080\uffff\U00010000"`,
    ],
    [`{{printf "%v %t %5t|%-6t|" true false true false}}`, "true false  true|false |"],
    [
      `{{printf "%f %.2f %8.3f|%-8.1f|%+.1f|%08.2f|%.0f %.0f %.0f" 3.14159 2.675 3.14159 2.5 2.25 -3.5 0.5 1.5 2.5}}`,
      "3.141590 2.67    3.142|2.5     |+2.2|-0003.50|0 2 2",
    ],
    [
      `{{printf "%e %E %.0e %.3e %12.2e|" 123456.789 0.00012 15.0 1.0 1234.5}}`,
      "1.234568e+05 1.200000E-04 2e+01 1.000e+00     1.23e+03|",
    ],
    [
      `{{printf "%g %g %g %g %G %.3g %.10g" 100000.0 1000000.0 1e21 1e-7 1e-7 1234567.0 0.1}}`,
      "100000 1e+06 1e+21 1e-07 1E-07 1.23e+06 0.1",
    ],
    [`{{printf "%v %v %v %v %v" 1.0 1e6 123456789.0 1e-5 0.0001}}`, "1 1e+06 1.23456789e+08 1e-05 0.0001"],
    [`{{printf "%6.2f|%*d|%-*d|%.*f" 1.005 5 42 5 42 2 3.14159}}`, "  1.00|   42|42   |3.14"],
    [`{{printf "%[2]d %[1]d %d|%5.1[1]s" "1" 2}}`, "2 %!d(string=1) 2|    1"],
    [`{{printf "%[3]d %[x]d %[1]d" 1 2}}`, "%!d(BADINDEX) %!d(BADINDEX) 1"],
    [`{{printf "%d %s %z %!" "a" 3 true}}`, "%!d(string=a) %!s(int=3) %!z(bool=true) %!!(MISSING)"],
    [
      `{{printf "%d" nil}} {{printf "%v %s" nil nil}} {{printf "%"}} {{printf "%5"}}`,
      "%!d(<nil>) <nil> %!s(<nil>) %!(NOVERB) %!(NOVERB)",
    ],
    [`{{printf "%*d" "a" 3}} {{printf "%.*d" "a" 3}} {{printf "%.-3d" 3}}`, "%!(BADWIDTH)3 %!(BADPREC)3 %!-(int=3)3d"],
    [
      `{{printf "%s %d %v %q %x" .Labels .L .L .Labels .Labels}}`,
      `[api worker] [1 %!d(string=two) <nil> %!d(float64=2.5) %!d(bool=true) [%!d(string=p)]] [1 two <nil> 2.5 true [p]] ["api" "worker"] [617069 776f726b6572]`,
    ],
    [`{{printf "%v %+v %d" .M .M .M}}`, "{v <nil> {1}} {k:v nil:<nil> m:{x:1}} {%!d(string=v) <nil> {1}}"],
    [`{{printf "%T %T %T %T %T %T %T" 1 1.5 "a" true nil .Labels .L}}`, "int float64 string bool <nil> []string []interface {}"],
    [
      `{{printf "%t %t" 1 "a"}} {{printf "%s" true}} {{printf "%d" 1.5}} {{printf "%f" 1}} {{printf "%5d|%-8s" "a" 3}}`,
      "%!t(int=1) %!t(string=a) %!s(bool=true) %!d(float64=1.5) %!f(int=1) %!d(string=    a)|%!s(int=3       )",
    ],
    [
      `{{printf "%d %d" 1}} {{printf "a" 1 "b" nil}} {{printf "%[1]d" 1 2}}`,
      "1 %!d(MISSING) a%!(EXTRA int=1, string=b, <nil>) 1",
    ],
    [`{{printf "%%|%5%|%-5%" 1}}`, "%|%|%%!(EXTRA int=1)"],
    [`{{printf "%+s %+d % d %+v" "a" -1 -1 1.5}}`, "a -1 -1 1.5"],
    [`{{printf "%6v|%-6v|%06v" .L .Labels 7}}`, "[     1    two <nil>    2.5   true [     p]]|[api    worker]|000007"],
  ],
  "print and values": [
    [
      `{{print 1 2 "a" "b" 3 4 true nil 1.5}}|{{println}}|{{print}}|{{println 1 "a" "b" nil}}`,
      "1 2ab3 4 true <nil> 1.5|\n||1 a b <nil>\n",
    ],
    [
      "{{.L}} {{.M}} {{.Labels}} {{.Z}} {{.F}} {{.B}} {{.E}}|{{.N}}|{{.Neg}}",
      "[1 two <nil> 2.5 true [p]] {v <nil> {1}} [api worker] [] 2.5 true |<no value>|-5",
    ],
    [
      `{{.N}} {{.M.nil}} {{print .N}} {{printf "%v" .N}} {{html .N}} {{urlquery .N}}`,
      "<no value> <no value> <nil> <nil> &lt;no value&gt; %3Cno+value%3E",
    ],
    [
      "{{range .L}}<{{.}}>{{end}} {{range $i, $v := .L}}{{$i}}={{$v}};{{end}}",
      "<1><two><<no value>><2.5><true><[p]> 0=1;1=two;2=<no value>;3=2.5;4=true;5=[p];",
    ],
    [
      "{{1e20}} {{1e21}} {{1e6}} {{123456.0}} {{0.000001}} {{-0.0}} {{1.}} {{.5}} {{1_0.5_0}}",
      "1e+20 1e+21 1e+06 123456 1e-06 -0 1 0.5 10.5",
    ],
    [
      String.raw`{{07}} {{0o17}} {{0b101}} {{0x_ff}} {{-0x10}} {{+5}} {{'\n'}} {{'é'}} {{'\x41'}} {{'\u00e9'}} {{9223372036854775807}}`,
      "7 15 5 255 -16 5 10 233 65 233 9223372036854775807",
    ],
    ['{{"tab\\tq\\"\\\\ \\x41\\101\\u00e9\\U0001F600"}} {{`a\nb\\n`}}', 'tab\tq"\\ AAé😀 a\nb\\n'],
  ],
  "comparison and truth": [
    [
      `{{eq 1 1}} {{eq 1.5 1.5}} {{eq "a" "b"}} {{eq true true}} {{eq nil nil}} {{eq 1 nil}} {{eq nil 1}} {{eq .N nil}} {{ne .N nil}}`,
      "true true false true true false false true false",
    ],
    [
      `{{eq 1 2 3 1}} {{ne "a" "b"}} {{lt 1 2}} {{lt "a" "b"}} {{lt "Z" "é"}} {{lt 1.5 1.5}} {{le 1.5 1.5}} {{gt "b" "a"}} {{ge 2 3}}`,
      "true true true true true false true true false",
    ],
    [
      `{{if 0}}1{{end}}{{if 0.0}}2{{end}}{{if ""}}3{{end}}{{if .Z}}4{{end}}{{if not nil}}5{{end}}{{if .N}}6{{end}}{{if .M.nil}}7{{end}}{{if .}}8{{end}}{{if -1}}9{{end}}`,
      "589",
    ],
    [
      `{{not 0}} {{not "a"}} {{not .Labels}} {{not nil}} {{and 1 "a"}} {{and 0 (index .L 9)}} {{or "" 0 .Labels}} {{or 1 (index .L 9)}} {{and 1}} {{or ""}} {{1 | and 2}} {{0 | or ""}}`,
      "true false false true a 0 [api worker] 1 1  1 0",
    ],
  ],
  "index, slice, len, call": [
    [
      `{{index .Labels 0}} {{index .L 5 0}} {{index "abc" 1}} {{index .Labels}} {{1 | index .Labels}}`,
      "api p 98 [api worker] worker",
    ],
    [
      `{{slice "abcdef"}} {{slice "abcdef" 2}} {{slice "abcdef" 1 3}} {{slice .L 1 3}} {{slice .L 0 2 3}} {{slice .L 6}} {{slice "héé" 3}} {{slice "" 0 0}}`,
      "abcdef cdef bc [two <nil>] [1 two] [] é ",
    ],
    [`{{len "héllo"}} {{len .L}} {{len .Z}} {{len ""}} {{len (split "a,b" ",")}}`, "6 6 0 0 2"],
  ],
  escapes: [
    [
      String.raw`{{html "<a href='x'>\"&</a>" 1}} {{html .L}} {{html 1 2}} {{html "a" "b"}}`,
      "&lt;a href=&#39;x&#39;&gt;&#34;&amp;&lt;/a&gt;1 [1 two &lt;nil&gt; 2.5 true [p]] 1 2 ab",
    ],
    [
      String.raw`{{js "it's \"<b>\" = & \\ \n\té\u200b\U0001F600\x7f"}} {{js 1}}`,
      'it\\\'s \\"\\u003Cb\\u003E\\" \\u003D \\u0026 \\\\ \\u000A\\u0009é\\u200B😀\u007f 1',
    ],
    [
      `{{urlquery "a b&c=d/é~!*'()" 1}} {{urlquery .Labels}} {{"x y" | urlquery | html}}`,
      "a+b%26c%3Dd%2F%C3%A9~%21%2A%27%28%291 %5Bapi+worker%5D x+y",
    ],
  ],
  "later than Go 1.19": [
    ["{{with 0}}a{{else with 5}}{{.}}{{else}}c{{end}} {{with 0}}{{else with 0}}{{else}}{{.Job}}{{end}}", "5 j"],
    ["{{$i := 9}}{{$v := 8}}{{range $i, $v = .Labels}}{{$i}}{{$v}};{{end}}{{$i}}{{$v}}", "0api;1worker;1worker"],
  ],
  control: [
    [
      "{{range $i, $v := .L}}{{if eq $i 1}}{{continue}}{{end}}{{if eq $i 4}}{{break}}{{end}}{{$i}}:{{$v}} {{end}}",
      "0:1 2:<no value> 3:2.5 ",
    ],
    [`{{range .Z}}x{{else}}none{{end}} {{range split "" ""}}x{{else}}empty{{end}}`, "none empty"],
    ["{{range .N}}x{{else}}none{{end}}", "none"],
    [
      "{{range .Labels}}{{range $.L}}{{break}}{{end}}{{.}}{{end}} {{range .Labels}}{{range $.Z}}{{else}}{{break}}{{end}}x{{end}}y",
      "apiworker xxy",
    ],
    [
      "{{with $x := 5}}{{$x}}{{.}}{{end}} {{with .M.m}}{{.x}}{{end}} {{with not nil}}{{.}}{{end}}{{with .Z}}a{{else}}{{.Job}}{{end}}",
      "55 1 truej",
    ],
    [`{{if 0}}a{{else if ""}}b{{else if $x := 3}}{{$x}}{{else}}c{{end}} {{if $x := 0}}{{else}}{{$x}}{{end}}`, "3 0"],
    [
      "{{$x := 1}}{{range .Labels}}{{$x := add $x 1}}{{$x}}{{end}}{{$x}} {{$y := 1}}{{with 5}}{{$y = .}}{{end}}{{$y}} {{$x}}",
      "221 5 1",
    ],
    [
      '{{define "a"}}[{{.}}{{template "b" 1}}]{{end}}{{define "b"}}({{.}}{{$}}){{end}}{{template "a" "x"}}{{template "b"}}{{template `b` .Job}}',
      "[x(11)](<no value><no value>)(jj)",
    ],
    [
      `{{block "c" .Job}}<{{.}}>{{end}}{{template "c" 7}}{{define "d"}} {{end}}{{define "d"}}D{{end}}{{define "d"}} {{end}}{{template "d"}}`,
      "<j><7>D",
    ],
    [
      'a {{- " b " -}} c  {{- /* gone */ -}}  d {{/* gone */}} e {{ 1 -}}\n f\n{{- 2}} {{-3}} {{3 -}} - {{ "-}}" }} {{"{{"}} }} }',
      "a b cd  e 1f2 -3 3- -}} {{ }} }",
    ],
    [
      `{{1 | printf "%d-%d" 2 | printf "%s!" | len}} {{(.M).m.x}} {{$.M.m.x}} {{$m := .M}}{{$m.m.x}} {{(add 1 (mul 2 (sub 5 2)))}}`,
      "4 1 1 1 7",
    ],
    [
      `{{add 1.0 1e3}} {{add 'a' 0x10}} {{max -1 (min 2 3)}} {{div -7 2}} {{div 7 -2}} {{int "-12"}} {{int 3}} {{int "+5"}} {{sub -9223372036854775808 1}}`,
      "1001 113 2 -3 -3 -12 3 5 9223372036854775807",
    ],
    [
      String.raw`{{trim " \t\u00a0x\n"}}|{{upper "straße é"}}|{{lower "ÀB"}}|{{join (split "a,b,c" ",") "-"}}|{{split "a" ""}}|{{len (split "" "")}}|{{split "aXbX" "X"}}|{{join .Labels ""}}|{{len (split "a" ",")}}`,
      "x|STRAßE É|àb|a-b-c|[a]|0|[a b ]|apiworker|1",
    ],
  ],
};

for (const [topic, cases] of Object.entries(OUTPUTS))
  test(`templates: ${topic}`, () => {
    for (const [template, output] of cases) assert.equal(render(template), output, template);
  });

const EXECUTION_FAILURES: [template: string, failure: string][] = [
  ["{{.Job.Nope}}", "1:6: at <.Job.Nope>: can't evaluate field Nope in type string"],
  ["{{.Nope}}", "1:2: at <.Nope>: can't evaluate field Nope in type struct"],
  ["{{$.Nope.x}}", "1:3: at <$.Nope.x>: can't evaluate field Nope in type struct"],
  ["{{.M.nil.x | len}}", "1:4: at <.M.nil.x>: nil pointer evaluating interface {}.x"],
  ["{{len 3}}", "1:2: at <len 3>: error calling len: len of type int"],
  ["{{index .Labels 2}}", "1:2: at <index .Labels 2>: error calling index: index out of range: 2"],
  ["{{index .Labels -1}}", "1:2: at <index .Labels -1>: error calling index: index out of range: -1"],
  [`{{index .Labels "a"}}`, `1:2: at <index .Labels "a">: error calling index: cannot index slice/array with type string`],
  ["{{index nil 1}}", "1:2: at <index nil 1>: error calling index: index of untyped nil"],
  ["{{index 1 2}}", "1:2: at <index 1 2>: error calling index: can't index item of type int"],
  ["{{index .M 1}}", "1:2: at <index .M 1>: error calling index: can't index item of type struct"],
  [`{{slice "abc" 2 1}}`, `1:2: at <slice "abc" 2 1>: error calling slice: invalid slice index: 2 > 1`],
  [`{{slice "abc" 4}}`, `1:2: at <slice "abc" 4>: error calling slice: index out of range: 4`],
  [`{{slice "abc" 0 1 2}}`, `1:2: at <slice "abc" 0 1 2>: error calling slice: cannot 3-index slice a string`],
  ["{{slice 1}}", "1:2: at <slice 1>: error calling slice: can't slice item of type int"],
  ["{{slice .L 0 1 2 3}}", "1:2: at <slice .L 0 1 2 3>: error calling slice: too many slice indexes: 4"],
  ["{{eq 1}}", "1:2: at <eq 1>: error calling eq: missing argument for comparison"],
  ["{{eq}}", "1:2: at <eq>: wrong number of args for eq: want at least 1 got 0"],
  [`{{eq 1 "a"}}`, `1:2: at <eq 1 "a">: error calling eq: incompatible types for comparison`],
  ["{{eq 1 1.0}}", "1:2: at <eq 1 1.0>: error calling eq: incompatible types for comparison"],
  ["{{lt true false}}", "1:2: at <lt true false>: error calling lt: invalid type for comparison"],
  ["{{lt nil 1}}", "1:2: at <lt nil 1>: error calling lt: invalid type for comparison"],
  ["{{lt .Labels 1}}", "1:2: at <lt .Labels 1>: error calling lt: invalid type for comparison"],
  ["{{not}}", "1:2: at <not>: wrong number of args for not: want 1 got 0"],
  ["{{and}}", "1:2: at <and>: wrong number of args for and: want at least 1 got 0"],
  ["{{printf}}", "1:2: at <printf>: wrong number of args for printf: want at least 1 got 0"],
  ["{{printf 3}}", "1:9: at <3>: expected string; found 3"],
  [
    "{{printf `%9999999d` 1}}",
    "1:2: at <printf `%9999999d` 1>: error calling printf: the width or precision 9999999 is more than 1000000",
  ],
  [
    `{{printf \`%${"9".repeat(40)}d\` 1}}`,
    `1:2: at <printf \`%${"9".repeat(40)}d\` 1>: error calling printf: the width or precision ${"9".repeat(20)} is more than 1000000`,
  ],
  ["{{printf `%.101f` 1.0}}", "1:2: at <printf `%.101f` 1.0>: error calling printf: a float has at most 100 digits"],
  ["{{printf `%#v` 1}}", "1:2: at <printf `%#v` 1>: error calling printf: the flag # goes with b, o, x, X and q only"],
  ["{{printf `% x` `a`}}", "1:2: at <printf `% x` `a`>: error calling printf: with %x the flags # and blank need an integer"],
  ["{{add 1}}", "1:2: at <add>: wrong number of args for add: want 2 got 1"],
  ["{{add 1 2.5}}", "1:8: at <2.5>: expected integer; found 2.5"],
  ["{{add 1 true}}", "1:8: at <true>: expected integer; found true"],
  ["{{add 1 nil}}", "1:8: at <nil>: cannot assign nil to int"],
  ["{{add .Job 1}}", "1:6: at <.Job>: wrong type for value; expected int; got string"],
  ["{{add .M.nil 1}}", "1:8: at <.M.nil>: invalid value; expected int"],
  ["{{upper 3}}", "1:8: at <3>: expected string; found 3"],
  ["{{upper .UpdateSeq}}", "1:8: at <.UpdateSeq>: wrong type for value; expected string; got int"],
  [`{{join "a" ","}}`, `1:7: at <"a">: can't handle "a" for arg of type []string`],
  ["{{split 1 2}}", "1:8: at <1>: expected string; found 1"],
  ["{{div 1 0}}", "1:2: at <div 1 0>: error calling div: runtime error: integer divide by zero"],
  [`{{int "x"}}`, `1:2: at <int "x">: error calling int: strconv.Atoi: parsing "x": invalid syntax`],
  [
    `{{int "9223372036854775808"}}`,
    `1:2: at <int "9223372036854775808">: error calling int: strconv.Atoi: parsing "9223372036854775808": value out of range`,
  ],
  ["{{int true}}", "1:2: at <int true>: error calling int: int: expected string or integer"],
  [`{{get "ns" "zz"}}`, `1:2: at <get "ns" "zz">: error calling get: key not found or deleted`],
  ["{{3 1}}", "1:2: at <3>: can't give argument to non-function 3"],
  [`{{"a" 1}}`, `1:2: at <"a">: can't give argument to non-function "a"`],
  ["{{true 1}}", "1:2: at <true>: can't give argument to non-function true"],
  ["{{. 1}}", "1:2: at <.>: can't give argument to non-function ."],
  ["{{.Job 1}}", "1:2: at <.Job>: Job has arguments but cannot be invoked as function"],
  ["{{.M.k 1}}", "1:4: at <.M.k>: k has arguments but cannot be invoked as function"],
  ["{{$x := 1}}{{$x 2}}", "1:13: at <$x>: can't give argument to non-function $x"],
  ["{{nil}}", "1:2: at <nil>: nil is not a command"],
  ["{{nil 1}}", "1:2: at <nil>: can't give argument to non-function nil"],
  ["{{(1) 2}}", "1:3: at <1>: can't give argument to non-function 1"],
  ["{{1 | .Job}}", "1:6: at <.Job>: Job has arguments but cannot be invoked as function"],
  ["{{$x = 1}}", "1:2: at <$x = 1>: undefined variable: $x"],
  ["{{range 3}}{{end}}", "1:8: at <3>: range can't iterate over 3"],
  ["{{range .Job}}{{end}}", "1:8: at <.Job>: range can't iterate over a value of type string"],
  ["{{range true}}{{end}}", "1:8: at <true>: range can't iterate over a value of type bool"],
  [`{{template "x"}}`, `1:11: at <{{template "x"}}>: template "x" not defined`],
  ["{{18446744073709551615}}", "1:2: at <18446744073709551615>: 18446744073709551615 overflows int"],
  ["{{call 3}}", "1:2: at <call 3>: error calling call: non-function 3 of type int"],
  ["{{call nil}}", "1:2: at <call nil>: error calling call: call of nil"],
  ["{{call}}", "1:2: at <call>: wrong number of args for call: want at least 1 got 0"],
  ["a\n\u00e9 {{ if 1 }}\n {{ .Nope }}{{end}}", "3:4: at <.Nope>: can't evaluate field Nope in type struct"],
  [`{{slice "h\u00e9" 0 2}}`, `1:2: at <slice "h\u00e9" 0 2>: error calling slice: the slice would cut a character in two`],
];

test("an execution error names line, column, the failing part and the reason", () => {
  for (const [template, failure] of EXECUTION_FAILURES) assert.equal(failureOf(template), failure);
});

test("an error inside a called template names that template", () => {
  assert.equal(
    failureOf("{{define `u`}}{{.Nope}}{{end}}{{template `u` .}}"),
    `1:16: executing "u" at <.Nope>: can't evaluate field Nope in type struct`,
  );
});

const PARSE_FAILURES: [template: string, failure: string][] = [
  ["{{", "1:0: unclosed action"],
  ["{{}}", "1:2: missing value for command"],
  ["{{ }}", "1:3: missing value for command"],
  ["{{if}}{{end}}", "1:4: missing value for if"],
  ["{{range}}{{end}}", "1:7: missing value for range"],
  ["{{with}}{{end}}", "1:6: missing value for with"],
  ["{{if 1}}", "1:8: unexpected EOF: {{if}} of line 1 has no {{end}}"],
  ["{{end}}", "1:2: unexpected {{end}}"],
  ["{{else}}", "1:2: unexpected {{else}}"],
  ["{{if 1}}{{else}}{{else}}{{end}}", "1:18: expected end; found {{else}}"],
  ["{{range 1}}{{else if 1}}{{end}}", "1:18: unexpected <if> in input"],
  [`{{define "a"}}{{else}}{{end}}`, "1:16: unexpected {{else}} in define clause"],
  ["{{define a}}{{end}}", `1:9: unexpected "a" in define clause`],
  [`{{define "a"}}`, "1:14: unexpected EOF: {{define}} of line 1 has no {{end}}"],
  [`{{if 1}}{{define "a"}}{{end}}{{end}}`, "1:10: unexpected <define> in command"],
  ["{{template}}", `1:10: unexpected "}}" in template clause`],
  ["{{template 1}}", `1:11: unexpected "1" in template clause`],
  [`{{block "a"}}{{end}}`, "1:11: missing value for block clause"],
  ["{{break}}", "1:2: {{break}} outside {{range}}"],
  ["{{continue}}", "1:2: {{continue}} outside {{range}}"],
  ["{{range .L}}{{break 1}}{{end}}", `1:20: unexpected "1" in {{break}}`],
  ["{{$x}}", `1:2: undefined variable "$x"`],
  ["{{if $x := 1}}{{end}}{{$x}}", `1:23: undefined variable "$x"`],
  [`{{define "a"}}{{$x}}{{end}}{{$x := 1}}`, `1:16: undefined variable "$x"`],
  ["{{$x := }}", "1:8: missing value for command"],
  ["{{$x, $y := 1}}", "1:4: too many declarations in command"],
  ["{{range $x, $y, $z := .L}}{{end}}", "1:14: too many declarations in range"],
  ["{{range $x, 1 := .L}}{{end}}", "1:12: range can only initialize variables"],
  ["{{1 := 2}}", `1:4: unexpected ":=" in operand`],
  ["{{nope}}", `1:2: function "nope" not defined`],
  ["{{nope 1}}", `1:2: function "nope" not defined`],
  ["{{.a.}}", "1:4: unexpected <.> in operand"],
  ["{{.a@}}", "1:4: bad character U+0040 '@'"],
  ["{{$@}}", "1:3: bad character U+0040 '@'"],
  ["{{a@}}", "1:3: bad character U+0040 '@'"],
  ["{{1.a}}", `1:2: bad number syntax: "1.a"`],
  [`{{"a".b}}`, String.raw`1:5: unexpected . after term "\"a\""`],
  ["{{true.b}}", `1:6: unexpected . after term "true"`],
  ["{{nil.b}}", `1:5: unexpected . after term "nil"`],
  ["{{1 | 2}}", "1:6: non executable command in pipeline stage 2"],
  [`{{1 | "a"}}`, "1:6: non executable command in pipeline stage 2"],
  ["{{1 | nil}}", "1:6: non executable command in pipeline stage 2"],
  ["{{1 | .}}", "1:6: non executable command in pipeline stage 2"],
  ["{{| 1}}", `1:2: unexpected "|" in command`],
  ["{{(1}}", "1:4: unclosed left paren"],
  ["{{1)}}", `1:3: unexpected ")" in command`],
  ["{{()}}", "1:3: missing value for parenthesized pipeline"],
  [`{{"a}}`, "1:2: unterminated quoted string"],
  ["{{`a}}", "1:2: unterminated raw quoted string"],
  ["{{'a}}", "1:2: unterminated character constant"],
  ["{{''}}", "1:2: malformed character constant: ''"],
  ["{{'ab'}}", "1:2: malformed character constant: 'ab'"],
  [String.raw`{{"\q"}}`, String.raw`1:2: invalid syntax in "\q"`],
  [String.raw`{{"\'"}}`, String.raw`1:2: invalid syntax in "\'"`],
  [String.raw`{{"\ud800"}}`, String.raw`1:2: invalid syntax in "\ud800"`],
  [String.raw`{{"\x4"}}`, String.raw`1:2: invalid syntax in "\x4"`],
  ["{{08}}", `1:2: integer overflow: "08"`],
  ["{{1__0}}", `1:2: illegal number syntax: "1__0"`],
  ["{{0x}}", `1:2: illegal number syntax: "0x"`],
  ["{{1e}}", `1:2: illegal number syntax: "1e"`],
  ["{{1a}}", `1:2: bad number syntax: "1a"`],
  ["{{1+2}}", `1:2: bad number syntax: "1+"`],
  ["{{99999999999999999999}}", `1:2: integer overflow: "99999999999999999999"`],
  ["{{1e999}}", `1:2: illegal number syntax: "1e999"`],
  ["{{,}}", `1:2: unexpected "," in command`],
  ["{{a :}}", `1:2: function "a" not defined`],
  ["{{é}}", `1:2: function "é" not defined`],
  ["{{/* a}}", "1:0: unclosed comment"],
  ["{{/* a */ 1}}", "1:0: comment ends before closing delimiter"],
  ["{{ /* a */ }}", `1:3: unexpected "/" in command`],
  ["{{1 == 1}}", `1:4: unexpected "=" in operand`],
  ["{{end 1}}", `1:6: unexpected "1" in end`],
  ["{{else 1}}", `1:7: unexpected "1" in else`],
  ["{{ := 1}}", `1:3: unexpected ":=" in command`],
  ["{{ = 1}}", `1:3: unexpected "=" in command`],
  [`{{"}}"`, "1:0: unclosed action"],
  ['{{"a\nb"}}', "1:2: unterminated quoted string"],
  ["{{range .L}}{{block `a` .}}{{break}}{{end}}{{end}}", "1:29: {{break}} outside {{range}}"],
  ["{{print | 3}}", "1:10: non executable command in pipeline stage 2"],
  ["{{define `a`}}1{{end}}{{define `a`}}2{{end}}", `1:24: multiple definition of template "a"`],
  ["é\n\té {{ if }}{{end}}", "2:10: missing value for if"],
  ["{{ .Job\n\n", "1:0: unclosed action"],
  [String.raw`{{"\xff"}}`, String.raw`1:2: the escapes of "\xff" are not UTF-8`],
];

test("a parse error names line, column and the reason", () => {
  for (const [template, failure] of PARSE_FAILURES) assert.equal(failureOf(template), failure);
});

test("a function's own error is kept as cause, and a function replaces another of its name", () => {
  const cause = new Error("boom");
  const functions: Record<string, TemplateFunction> = {
    fail: typed([], () => {
      throw cause;
    }),
    trim: typed([], () => "ours"),
  };
  assert.equal(render("{{trim}}", null, functions), "ours");
  assert.throws(
    () => render("{{fail}}", null, functions),
    (error: Failure) => error.cause === cause && error.message.endsWith("error calling fail: boom"),
  );
});

test("only own fields of the data and known functions exist", () => {
  for (const name of ["constructor", "__proto__", "toString"]) {
    assert.match(failureOf(`{{.${name}}}`), /can't evaluate field/);
    assert.match(failureOf(`{{${name}}}`), /function ".*" not defined$/);
    assert.match(failureOf(`{{.M.${name}}}`), /can't evaluate field/);
  }
});

test("integers have 64 bits and wrap as Go's do", () => {
  const cases = {
    "{{add 9223372036854775807 1}}": "-9223372036854775808",
    "{{mul 4294967296 4294967296}}": "0",
    "{{div -9223372036854775808 -1}}": "-9223372036854775808",
    "{{9007199254740993}} {{int `9007199254740993`}}": "9007199254740993 9007199254740993",
  };
  for (const [template, output] of Object.entries(cases)) assert.equal(render(template), output);
});

test("a number is true where it is not zero, as in Go: NaN is", () => {
  assert.deepEqual([0, -0, 1, Number.NaN, 0n, 1n].map(isTrue), [false, false, true, true, false, true]);
});

test("a format of many unfinished indexes is read in one go", () => {
  const count = 100_000;
  assert.equal(render(`{{printf "${"%[".repeat(count)}"}}`).length, "%![(MISSING)".length * count);
});

test("output, strings, calls and nesting are bounded", () => {
  const many = "`".concat("a".repeat(40), "`");
  // Takes most of the steps that are allowed, and quickly, so that little is left for what follows.
  const most = `{{range split "${"a".repeat(150)}" ""}}{{$x := printf "%1000000d" 1}}{{end}}`;
  assert.equal(render(most), "");
  const bounded: [template: string, reason: RegExp][] = [
    [`{{$x := printf "%1000000d" 1}}{{range split ${many} ""}}{{$x}}{{end}}`, /output has more than 16777216 bytes/],
    [`{{$x := "0123456789"}}{{range split ${many} ""}}{{$x = print $x $x}}{{end}}`, /result has more than 16777216/],
    [`{{$x := split (printf "%9999d" 1) ""}}{{join $x (printf "%9999d" 1)}}`, /result has more than 16777216/],
    ["{{define `a`}}{{template `a`}}{{end}}{{template `a`}}", /exceeded maximum template depth \(100\)/],
    [
      `{{define "a"}}${"{{if 1}}".repeat(50)}{{template "a"}}${"{{end}}".repeat(50)}{{end}}{{template "a"}}`,
      /more than 1000 nested blocks and calls/,
    ],
    [
      `${most}{{define "a"}}{{if lt . 90}}{{template "a" (add . 1)}}{{template "a" (add . 1)}}{{end}}{{end}}{{template "a" 0}}`,
      /more than 5000000 steps were taken$/,
    ],
    [
      `${most}{{$t := printf "%1000000d" 1}}{{range split (printf "%9999d" 1) ""}}{{$x := split $t ""}}{{end}}`,
      /more than 5000000 steps were taken$/,
    ],
    [
      `${most}{{$x := printf "%1000000d" 1}}{{range split (printf "%9999d" 1) ""}}{{$y := len $x}}{{end}}`,
      /more than 5000000 steps were taken$/,
    ],
    [`{{${"(".repeat(101)}1${")".repeat(101)}}}`, /more than 100 nested parentheses/],
    [`${"{{if 1}}".repeat(101)}${"{{end}}".repeat(101)}`, /more than 100 nested blocks/],
  ];
  for (const [template, reason] of bounded) assert.match(failureOf(template), reason);
  const large: TemplateValue = { L: Array(40).fill("x".repeat(1 << 20)) };
  assert.match(failureOf("{{.L}}", large), /^1:2: at <\.L>: error calling print: the result has more than 16777216/);
  assert.equal(render(`{{if 0}}${"{{else if 0}}".repeat(5000)}{{else}}z{{end}}`), "z");
});
