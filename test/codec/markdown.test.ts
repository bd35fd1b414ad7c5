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
    "**a** *b* ~~c~~ __d__ some_long_name 2 * 3 \\*e\\*",
    "<p><strong>a</strong> <em>b</em> <del>c</del> <strong>d</strong> some_long_name 2 * 3 *e*</p>",
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
] as const)
  test(`Markdown: ${what}`, () => assert.equal(markdownToHtml(markdown), html));

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
