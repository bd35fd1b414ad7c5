import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";

const { plain, styled } = await import(path.join(PROGRAM_ROOT, "ui/base/text.js"));
/** `class:text` of each piece, as it is shown; a piece without a class is its text. */
const pieces = (text: string): string[] =>
  styled(text).map(({ text, classes }: { text: string; classes: string }) =>
    classes === "" ? plain(text) : `${classes}:${plain(text)}`,
  );

const CASES: [string, string, string[]][] = [
  ["plain text is one piece", "plain", ["plain"]],
  ["nothing is no piece", "", []],
  ["a colour until its end", "a\x1b[31mb\x1b[0mc", ["a", "fg1:b", "c"]],
  ["an empty SGR ends all", "\x1b[1;32mb\x1b[mc", ["bold fg2:b", "c"]],
  ["bright colours are like the others", "\x1b[91ma\x1b[102mb", ["fg1:a", "fg1 bg2:b"]],
  ["the default colour", "\x1b[31;44ma\x1b[39mb\x1b[49mc", ["fg1 bg4:a", "bg4:b", "c"]],
  ["styles begin and end", "\x1b[1;3;4;7;9ma\x1b[22;23;24;27;29mb", ["bold italic underline inverse strike:a", "b"]],
  ["one of 256 colours", "\x1b[38;5;9ma\x1b[38;5;196mb", ["fg1:a", "fg1:b"]],
  ["a colour of its own becomes the nearest", "\x1b[38;2;0;200;0ma", ["fg2:a"]],
  ["numbers with colons", "\x1b[38:5:2ma", ["fg2:a"]],
  ["unknown numbers change nothing", "\x1b[999;48;5;999ma", ["a"]],
  ["text cannot be concealed", "\x1b[8ma", ["a"]],
  ["other sequences are shown as what they are", "a\x1b[2Jb\x1b[?25lc", ["a‹ESC›[2Jb‹ESC›[?25lc"]],
  ["a title is shown as text", "a\x1b]0;title\x07b", ["a‹ESC›]0;title‹BEL›b"]],
  ["a sequence that is cut off", "a\x1b[", ["a‹ESC›["]],
  ["control characters can be seen", "a\0b\rc\x07d\x7f", ["a‹NUL›b‹CR›c‹BEL›d‹DEL›"]],
  ["tabs stay", "a\tb", ["a\tb"]],
  ["marks of direction can be seen", "a\u202eb\u2066c\u200f", ["a‹U+202E›b‹U+2066›c‹U+200F›"]],
  ["what has no width can be seen", "a\u200bb\u{e0041}c\ufeff", ["a‹U+200B›b‹U+E0041›c‹U+FEFF›"]],
  ["right-to-left letters are letters", "שלום", ["שלום"]],
  ["HTML is text", "<b>\x1b[1m&lt;</b>", ["<b>", "bold:&lt;</b>"]],
];
for (const [name, text, expected] of CASES) test(`T-92 ${name}`, () => assert.deepEqual(pieces(text), expected));

test("sequences without end cost time in proportion to the line", () => {
  for (const text of ["\x1b]", "\x1b[1", "\x1b[38;5;"]) assert.ok(styled(text.repeat(200_000)).length >= 0);
});
