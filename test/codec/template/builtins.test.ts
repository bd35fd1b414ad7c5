import assert from "node:assert/strict";
import { test } from "node:test";
import { renderTemplate } from "../../../lib/codec/template/exec.ts";
import { type TemplateValue, typed } from "../../../lib/codec/template/funcs.ts";

const DOT: TemplateValue = { N: null, L: [1n, 2n, 3n, 4n], S: "text", P: [null] };
const MOST = 16 * 1024 * 1024;
const FUNCTIONS = { fits: typed([], () => "x".repeat(MOST)), long: typed([], () => "x".repeat(MOST + 1)) };
const render = (text: string) => renderTemplate("t", text, DOT, FUNCTIONS);

test("nil, lists and limits are refused by the functions as Go refuses them", () => {
  const refused: [action: string, why: RegExp][] = [
    ["len .N", /len of nil pointer/],
    ["index .N", /index of untyped nil/],
    ["index .P 0 0", /index of untyped nil/],
    ["index .L .N", /cannot index slice\/array with nil/],
    ["slice .N", /slice of untyped nil/],
    ["slice", /wrong number of args for slice: want at least 1 got 0/],
    ["slice .L 1 3 2", /invalid slice index: 3 > 2/],
    ["eq .L 1", /non-comparable type \[\]interface \{\}/],
    ["eq 1 .L", /non-comparable type \[\]interface \{\}/],
    ['eq 1 "a"', /incompatible types for comparison/],
    ["print 18446744073709551616", /integer overflow/],
    ["print -9223372036854775809", /integer overflow/],
    ['print "\\400"', /invalid syntax in "\\400"/],
    ['print "\\uDFFF"', /invalid syntax in "\\uDFFF"/],
    ['print "\\U00110000"', /invalid syntax in/],
    ["len long", /error calling long: the result has more than 16777216 bytes/],
    // So much that no text could hold it.
    [`$x := fits}}{{print ${"$x ".repeat(33)}`, /error calling print: the result has more than 16777216 bytes/],
    ['join (split (printf "%9999d" 1) "") (printf "%99999d" 1)', /error calling join: the result has more than 16777216 bytes/],
    ["print €", /:1:8: unrecognized character in action: U\+20AC '€'/],
    ["\u0001", /:1:2: unrecognized character in action: U\+0001$/],
    ["print (1))", /unexpected "\)" in command/],
  ];
  for (const [action, why] of refused) assert.throws(() => render(`{{${action}}}`), { message: why }, action);
});

test("what stands at a limit is taken", () => {
  const shown: [action: string, text: string][] = [
    ["slice .L 1 3 3", "[2 3]"],
    ['lt "a" "a"', "false"],
    ['lt "a" "b"', "true"],
    ["print 'a'", "97"],
    ["$x := .N}}{{$x.name", "<no value>"],
    ["add 'a' 1", "98"],
    ['print "\\U0010FFFF\\uD7FF\\uE000"', "\u{10ffff}\ud7ff\ue000"],
    ["mul 4611686018427387904 1", "4611686018427387904"],
    ["mul 4611686018427387904 2", "-9223372036854775808"],
    ["print -9223372036854775808", "-9223372036854775808"],
  ];
  for (const [action, text] of shown) assert.equal(render(`{{${action}}}`), text, action);
});
