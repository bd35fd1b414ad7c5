import assert from "node:assert/strict";
import { test } from "node:test";
import { escapeHtml, firstHeading, markdownToHtml } from "../../lib/codec/markdown.ts";

for (const [what, markdown, html] of [
  [
    "headings with anchors",
    "# The `db` is down #\n\nTitle\n===",
    '<h1 id="the-db-is-down">The <code>db</code> is down</h1>\n<h1 id="title">Title</h1>',
  ],
  ["paragraphs and breaks", "a\nb  \nc\n\nd", "<p>a\nb<br>\nc</p>\n<p>d</p>"],
  [
    "emphasis, not within words",
    "**a** *b* ~~c~~ __d__ some_long_name 2 * 3 \\*e\\* _f_",
    "<p><strong>a</strong> <em>b</em> <del>c</del> <strong>d</strong> some_long_name 2 * 3 *e* <em>f</em></p>",
  ],
  [
    "lists in lists, with code",
    "- a\n  b\n  1. c\n     ```\n     d\n     ```\n- e",
    "<ul>\n<li>a\nb\n<ol>\n<li>c\n<pre><code>d\n</code></pre></li>\n</ol></li>\n<li>e</li>\n</ul>",
  ],
  [
    "lists of paragraphs",
    "3. a\n\n   b\n4. c\n\nd",
    '<ol start="3">\n<li><p>a</p>\n<p>b</p></li>\n<li><p>c</p></li>\n</ol>\n<p>d</p>',
  ],
  [
    "code as it is written",
    "```sh\n<a> **b** {{ c }}\n```\n\n    d\n",
    "<pre><code>&lt;a&gt; **b** &#123;&#123; c &#125;&#125;\n</code></pre>\n<pre><code>d\n</code></pre>",
  ],
  ["an open fence to the end", "~~~\na\n```", "<pre><code>a\n```\n</code></pre>"],
  ["code in a line", "``a`b`` and `{{ . }}`", "<p><code>a`b</code> and <code>&#123;&#123; . &#125;&#125;</code></p>"],
  [
    "tables",
    "| a | b |\n|---|:-:|\n| 1 | `x \\| y` |\n| | 2 |\n\nc",
    "<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td>1</td><td><code>x | y</code></td></tr>\n<tr><td></td><td>2</td></tr>\n</table>\n<p>c</p>",
  ],
  ["quotes and rules", "> a\n> - b\n\n---", "<blockquote><p>a</p>\n<ul>\n<li>b</li>\n</ul></blockquote>\n<hr>"],
  [
    "links",
    '[a](b.md#c) [d](https://e/f.md "g") <https://h/?i=1&j=2>. mailto: [k](mailto:l@m)',
    '<p><a href="b.html#c">a</a> <a href="https://e/f.md">d</a> <a href="https://h/?i=1&amp;j=2">https://h/?i=1&amp;j=2</a>. mailto: <a href="mailto:l@m">k</a></p>',
  ],
  [
    "a fence that is indented, and lines that do not close it",
    "   ```\n---\n``` x\n  ````\nb",
    "<pre><code>---\n``` x\n</code></pre>\n<p>b</p>",
  ],
  ["indented code with blank lines", "    a\n\n\n    # b\n\nc", "<pre><code>a\n\n\n# b\n</code></pre>\n<p>c</p>"],
  [
    "marks with three blanks before them",
    "   # a\n   ***\n   > b\n\n   - c\n\nd\n   ---",
    '<h1 id="a">a</h1>\n<hr>\n<blockquote><p>b</p></blockquote>\n<ul>\n<li>c</li>\n</ul>\n<h2 id="d">d</h2>',
  ],
  [
    "marks within a line, which are text",
    "a ```b\n\na # b\n\na - - -\n\na > b\n\na - b\n\na\tb     c\ufeffd\n\na\nb ===\n=== c\n    ===\n\n--- a",
    "<p>a ```b</p>\n<p>a # b</p>\n<p>a - - -</p>\n<p>a &gt; b</p>\n<p>a - b</p>\n<p>a\tb     c\ufeffd</p>\n" +
      "<p>a\nb ===\n=== c\n===</p>\n<p>--- a</p>",
  ],
  [
    "blocks right behind a text",
    "a\n```\nb\n```\nc\n# d\ne\n***\nf\n> g\n\nh\n- i",
    '<p>a</p>\n<pre><code>b\n</code></pre>\n<p>c</p>\n<h1 id="d">d</h1>\n<p>e</p>\n<hr>\n<p>f</p>\n' +
      "<blockquote><p>g</p></blockquote>\n<p>h</p>\n<ul>\n<li>i</li>\n</ul>",
  ],
  ["a heading with signs, whole", "# C# #1, b! #\n# a\u2028b", '<h1 id="c-1-b">C# #1, b!</h1>\n<p># a\u2028b</p>'],
  ["a mark of the byte order, and tabs", "\ufeff# a\n\n\tb", '<h1 id="a">a</h1>\n<pre><code>b\n</code></pre>'],
  [
    "lists of several kinds, and a rule between",
    "- a\n- b\n1. c\n* * *\n0. d\n-     e",
    "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n<ol>\n<li>c</li>\n</ol>\n<hr>\n" +
      '<ol start="0">\n<li>d</li>\n</ol>\n<ul>\n<li><pre><code>e\n</code></pre></li>\n</ul>',
  ],
  [
    "what belongs to an item behind a blank line",
    "- a\n\n- b\n\n  c\n\n d\n\n10. e\n\n  f\n\ng",
    "<ul>\n<li><p>a</p></li>\n<li><p>b</p>\n<p>c</p></li>\n</ul>\n<p>d</p>\n" +
      '<ol start="10">\n<li><p>e</p>\n<p>f</p></li>\n</ol>\n<p>g</p>',
  ],
  [
    "tables without outer lines, with rows of another length",
    "a|b\n:-|-:\n1|2|3\n4\n> c\n\na|b\n-|-|-\n\na|b\n-|x-\n\na|b\n-|-x",
    "<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td>1</td><td>2</td></tr>\n<tr><td>4</td><td></td></tr>\n</table>\n" +
      "<blockquote><p>c</p></blockquote>\n<p>a|b\n-|-|-</p>\n<p>a|b\n-|x-</p>\n<p>a|b\n-|-x</p>",
  ],
  ["blanks in code", "`` `a` `` `b c ` ` d e`", "<p><code>`a`</code> <code>b c </code> <code> d e</code></p>"],
  ["a colon within a relative place", "[a](./b:c.md)", '<p><a href="./b:c.html">a</a></p>'],
] as const)
  test(`Markdown: ${what}`, () => assert.equal(markdownToHtml(markdown), html));

for (const mark of ["```", "# a", "---", "> a", "- a", "1. a"])
  test(`Markdown: ${mark} behind four blanks is code`, () => {
    assert.equal(markdownToHtml(`    ${mark}`), `<pre><code>${escapeHtml(mark)}\n</code></pre>`);
  });

test("Markdown: more than 20 blank lines end a list", () => {
  const lists = (blanks: number) => markdownToHtml(`- a\n${"\n".repeat(blanks)}- b`).split("<ul>").length - 1;
  assert.deepEqual([lists(20), lists(21)], [1, 2]);
});

test("whatever a text holds, no element and no attribute of its own comes of it", () => {
  const hostile = [
    "<script>alert(1)</script> <img src=x onerror=alert(1)> <!-- -->",
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert) [c](data:text/html,x) [d](\u0001javascript:x) [e](vbscript:x)",
    '[f](https://g/"onclick="x) [h](<"onclick="x>) <https://i/"onclick="x>',
    "# <b> {{ template }}\n| <i> | {{ x }} |\n|-|-|\n- <u>\n> <s>\n```\n</code></pre><script>\n```",
  ].join("\n\n");
  const html = markdownToHtml(hostile);
  assert.ok(!html.includes("{{") && !html.includes("}}"), html);
  const known = /<\/?(?:p|h1|ul|li|table|tr|th|td|pre|code|blockquote|a)>|<a href="(?!\w+script)[^"<>\s]*">|<h1 id="[^"<>]*">/g;
  assert.doesNotMatch(html.replace(known, ""), /[<>]/);
  assert.equal(escapeHtml(`<a href="b" c='d'>&{}`), "&lt;a href=&quot;b&quot; c=&#39;d&#39;&gt;&amp;&#123;&#125;");
});

test("lists and quotes are nested to a bound, and any text is read in a time that grows with its length", () => {
  const deep = markdownToHtml("> ".repeat(1000));
  assert.equal(deep.split("<blockquote>").length - 1, 20);
  assert.equal(markdownToHtml("- + ".repeat(500)).split("<ul>").length - 1, 20);
  for (const part of ["`a``b```", "*a ", "[", "_a", "- a\n", "- a\n\n", "x\n\n", "a|b\n-|-\n", "  - x\n\n\n"])
    assert.ok(markdownToHtml(part.repeat(20_000)).length > 0);
});

test("a text of 1 MiB comes to its end, wherever its blanks stand", () => {
  const blanks = " ".repeat(1024 * 1024);
  for (const text of [`a${blanks}b\nc`, `a|b\n-${blanks}x`, `a|b\n-|-${blanks}x`, `a|b\n|${blanks}-|x`, `# a${blanks}#b`])
    assert.ok(markdownToHtml(text).length > 0);
});

test("the first heading is a page's title, whichever form it has, and no line of code is one", () => {
  const title = (text: string) => firstHeading(markdownToHtml(text));
  assert.equal(title("text\n\n## The `db` is *down* ##\n# Later"), "The db is down");
  assert.equal(title("```sh\n# restart it\n```\n\n    # indented\n\nA <b> & c\n---"), "A &lt;b&gt; &amp; c");
  assert.equal(title("no heading\n#hash"), undefined);
});
