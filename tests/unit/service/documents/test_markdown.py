"""Markdown: what is language goes to the translator, what is not comes back byte for byte."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from service.documents import markdown
from service.documents.draft import Notice
from service.errors import InternalError
from service.records import TextFormat, Translation
from tests.fakes.shouting import answered, echoed, shouted, translation_of

# Name, source, the same in capital letters.
CASES = [
    ("paragraph", "a cat\n", "A CAT\n"),
    ("no end of line", "a cat", "A CAT"),
    ("heading", "# a cat\n", "# A CAT\n"),
    ("closed heading", "## a cat ##  \n", "## A CAT ##  \n"),
    ("underlined heading", "a cat\n=====\n", "A CAT\n=====\n"),
    ("emphasis", "a *b* _c_ **d** __e__ ***f***\n", "A *B* _C_ **D** __E__ ***F***\n"),
    ("strikethrough", "a ~~b~~\n", "A ~~B~~\n"),
    ("code", "a `code here` b\n", "A `code here` B\n"),
    ("code with backticks", "a ``co`de`` b\n", "A ``co`de`` B\n"),
    ("bold code", "**`code` b**\n", "**`code` B**\n"),
    ("link", '[a b](https://example.com/x_y "title")\n', '[A B](https://example.com/x_y "title")\n'),
    ("link with brackets", "[a [b] c](<u v>)\n", "[A [B] C](<u v>)\n"),
    ("link with emphasis", "see [*a* b](u)\n", "SEE [*A* B](u)\n"),
    ("reference", "[a b][r]\n\n[r]: https://example.com 'title'\n", "[A B][r]\n\n[r]: https://example.com 'title'\n"),
    ("shortcut reference", "[a]\n\n[a]: u\n", "[A][a]\n\n[a]: u\n"),
    ("collapsed reference", "[a][]\n\n[a]: u\n", "[A][a]\n\n[a]: u\n"),
    ("brackets that are no link", "a [b] c\n", "A [B] C\n"),
    ("image", "![a cat](cat.png)\n", "![A CAT](cat.png)\n"),
    ("image in text", "see ![a *cat*](cat.png) there\n", "SEE ![A *CAT*](cat.png) THERE\n"),
    ("image by reference", "![cat]\n\n[cat]: c.png\n", "![CAT][cat]\n\n[cat]: c.png\n"),
    ("linked image", "[![a](b.png)](u)\n", "[![A](b.png)](u)\n"),
    ("address", "see <https://example.com/a> b\n", "SEE <https://example.com/a> B\n"),
    ("mail", "<anna@example.org> a\n", "<anna@example.org> A\n"),
    ("inline HTML", "a <b>c</b> <br> d<sub class='x'>e</sub>\n", "A <b>C</b> <br> D<sub class='x'>E</sub>\n"),
    (
        "HTML keys and code",
        "a <kbd>Ctrl</kbd>+<kbd>s</kbd> <code>b c</code>\n",
        "A <kbd>Ctrl</kbd>+<kbd>s</kbd> <code>b c</code>\n",
    ),
    ("HTML of a program", "<samp>ok</samp> a <var>n</var>\n", "<samp>ok</samp> A <var>n</var>\n"),
    ("HTML that is not translated", 'a <i translate="no">b c</i> d\n', 'A <i translate="no">b c</i> D\n'),
    ("HTML of a name", '<span class="x notranslate">b *c*</span> d\n', '<span class="x notranslate">b *c*</span> D\n'),
    (
        "HTML of a formula",
        "a H<sub>2</sub>o x<sup>2</sup>, b<sup>th</sup>\n",
        "A H<sub>2</sub>O X<sup>2</sup>, B<sup>TH</sup>\n",
    ),
    ("HTML without an end", "a <kbd>b\n", "A <kbd>B\n"),
    ("break in a cell", "| a |\n|--|\n| b<br>c |\n", "| A |\n|--|\n| B<br>C |\n"),
    ("comment", "a <!-- note --> b\n", "A <!-- note --> B\n"),
    ("backslash that escapes nothing", "see C:\\own\\files\n", "SEE C:\\OWN\\FILES\n"),
    ("reference to two characters", "a &NotEqualTilde; b\n", "A \u2242\u0338 B\n"),
    ("hard break by spaces", "a  \nb\n", "A  \nB\n"),
    ("hard break by backslash", "a\\\nb\n", "A\\\nB\n"),
    ("soft breaks", "aaa bbb\nccc ddd\n", "AAA BBB\nCCC DDD\n"),
    ("escapes", "2 \\* 3 \\# a\n", "2 \\* 3 \\# A\n"),
    ("an escape that is needed once", "a 1990\\. b.\n", "A 1990. B.\n"),
    ("an escape of a list", "2\\. a. b.\n", "2\\. A. B.\n"),
    ("entities", "AT&amp;T &copy; a\n", "AT&amp;T &copy; A\n"),
    ("bare specials", "a < b & c > d * e _f\n", "A < B & C > D * E _F\n"),
    ("bullets", "- a\n- b\n\n  c\n* d\n+ e\n", "- A\n- B\n\n  C\n* D\n+ E\n"),
    ("numbers", "1. a\n2. b\n10) c\n", "1. A\n2. B\n10) C\n"),
    ("nested list", "- a\n  - b\n    1. c\n", "- A\n  - B\n    1. C\n"),
    ("tasks", "- [ ] a\n- [x] b\n", "- [ ] A\n- [x] B\n"),
    ("text behind a list item", "- a\nb\n", "- A\nB\n"),
    ("quote", "> a\n> b\n", "> A\n> B\n"),
    ("quote in a quote", "> > a\n> > b\n>\n> c\n", "> > A\n> > B\n>\n> C\n"),
    ("lazy quote", "> a\nb\n", "> A\nB\n"),
    ("alert", "> [!NOTE]\n> a\n", "> [!NOTE]\n> A\n"),
    ("list in a quote", "> - a\n>   b\n", "> - A\n>   B\n"),
    ("table", "| a | b |\n|---|:-:|\n| c | `d\\|e` |\n", "| A | B |\n|---|:-:|\n| C | `d\\|e` |\n"),
    ("table without edges", "a | b\n--|--\nc | a\n", "A | B\n--|--\nC | A\n"),
    ("table with an escape", "| a \\| b | c |\n|--|--|\n|  | **d** |\n", "| A \\| B | C |\n|--|--|\n|  | **D** |\n"),
    ("fence", "```python\na = 1\n```\n", "```python\na = 1\n```\n"),
    ("fence in an item", "- a\n\n  ~~~\n  code\n  ~~~\n", "- A\n\n  ~~~\n  code\n  ~~~\n"),
    ("indented code", "a\n\n    code\n", "A\n\n    code\n"),
    ("rule", "a\n\n---\n\n***\n", "A\n\n---\n\n***\n"),
    ("front matter", "---\ntitle: a\n---\nb\n", "---\ntitle: a\n---\nB\n"),
    ("front matter in TOML", "+++\ntitle = 'a'\n+++\n# b\n", "+++\ntitle = 'a'\n+++\n# B\n"),
    ("HTML block", '<div class="a">\nb <b>c</b>\n</div>\n', '<div class="a">\nB <b>C</b>\n</div>\n'),
    ("HTML block in a quote", "> <p>a\n> b</p>\n", "> <p>A\n> B</p>\n"),
    ("HTML without text", '<a id="b"></a>\n\n<img src="c.png">\n', '<a id="b"></a>\n\n<img src="c.png">\n'),
    ("script", "<script>\nlet a = 1\n</script>\n", "<script>\nlet a = 1\n</script>\n"),
    ("footnotes", "a[^1] b[^n]\n\n[^1]: c\n[^n]:\n    d\n", "A[^1] B[^n]\n\n[^1]: C\n[^n]:\n    D\n"),
    ("carriage returns", "a\r\nb\r\n\r\n- c\r\n", "A\r\nB\r\n\r\n- C\r\n"),
    ("tabs", "-\ta\n\n\tb\n", "-\tA\n\n\tB\n"),
    ("trailing spaces", "a   \n\n   b \n", "A   \n\n   B \n"),
    ("definitions", "a\n: b c\n\nd\n: e\n  f\n", "A\n: B C\n\nD\n: E\n  F\n"),
    ("no language", "1. 2\n\n---\n\n`x`\n\n:-)\n", "1. 2\n\n---\n\n`x`\n\n:-)\n"),
    ("nothing", "", ""),
    ("other scripts", "# Привет *мир*\n\n你好 **ß**\n", "# ПРИВЕТ *МИР*\n\n你好 **SS**\n"),
]


# Lines of other dialects: name, source, the same in capital letters.
DIALECTS = [
    ("container", "::: danger Stop it\na b\n:::\n", "::: danger STOP IT\nA B\n:::\n"),
    ("container without a space", ":::note\na\n:::\nb\n", ":::note\nA\n:::\nB\n"),
    ("container with a label", ":::tip[a *b*]{.wide}\n\nc\n\n:::\n", ":::tip[A *B*]{.wide}\n\nC\n\n:::\n"),
    ("container with attributes", "::: {.callout-note}\na\n:::\n", "::: {.callout-note}\nA\n:::\n"),
    ("containers in each other", ":::: grid\n::: card\na\n:::\n::::\n", ":::: grid\n::: card\nA\n:::\n::::\n"),
    ("container in a quote", "> ::: tip a\n> b\n> :::\n", "> ::: tip A\n> B\n> :::\n"),
    ("container behind a paragraph", "a b\n::: tip\nc\n:::\n", "A B\n::: tip\nC\n:::\n"),
    ("block of slashes", "/// note | a b\nc\n///\n", "/// note | A B\nC\n///\n"),
    ("admonition", '!!! note "a b"\n    c d\n\n    e\n\nf\n', '!!! note "A B"\n    C D\n\n    E\n\nF\n'),
    ("admonition without a title", "!!! tip\n\n    a\n    - b\n", "!!! tip\n\n    A\n    - B\n"),
    (
        "admonition with code",
        "!!! tip inline end\n    a\n\n        b c\n",
        "!!! tip inline end\n    A\n\n        b c\n",
    ),
    ("details", '??? question "a?"\n    b\n\n???+ note\n    c\n', '??? question "A?"\n    B\n\n???+ note\n    C\n'),
    ("tabs of content", '=== "a b"\n\n    c\n\n=== "d"\n\n    e\n', '=== "A B"\n\n    C\n\n=== "D"\n\n    E\n'),
    ("shortcodes", "{{% notice tip %}}\na\n{{% /notice %}}\n", "{{% notice tip %}}\nA\n{{% /notice %}}\n"),
    ("shortcode behind text", 'a\n{{< figure src="b" >}}\nc\n', 'A\n{{< figure src="b" >}}\nC\n'),
    ("templates", "{% if a %}\nb\n{% else %}\nc\n{% endif %}\n", "{% if a %}\nB\n{% else %}\nC\n{% endif %}\n"),
    ("attributes", "{: .note }\na\n\nb\n{: #id .wide}\n", "{: .note }\nA\n\nB\n{: #id .wide}\n"),
    ("attributes of Pandoc", "{#id .wide}\na\n", "{#id .wide}\nA\n"),
    ("table of contents", "[TOC]\na\n\n[[_TOC_]]\nb\n", "[TOC]\nA\n\n[[_TOC_]]\nB\n"),
    ("imports", "import A from './a'\n\nb\n", "import A from './a'\n\nB\n"),
    ("in code", "```\n::: tip a\n!!! b\n```\n\n    ::: c\n", "```\n::: tip a\n!!! b\n```\n\n    ::: c\n"),
    ("in front matter", "---\n::: tip a\n---\nb\n", "---\n::: tip a\n---\nB\n"),
    (
        "a text that looks like one",
        "!!! Stop all\n\n{{ a }} b {{ c }}\n\nimport a\n",
        "!!! STOP ALL\n\n{{ A }} B {{ C }}\n\nIMPORT A\n",
    ),
    ("carriage returns", "::: tip a\r\nb\r\n:::\r\n", "::: tip A\r\nB\r\n:::\r\n"),
]


def parsed(text: str) -> list[Any]:
    """What a reader sees, without the letters: kinds of blocks and marks, code, addresses."""
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(md, inline=False, move_to_end=False)
    seen: list[Any] = []
    for token in md.parse(text):
        seen.append((token.type, token.content if token.type in {"fence", "code_block"} else None))
        for child in token.children or []:
            if child.type not in {"text", "softbreak"}:
                content = child.content if child.type in {"code_inline", "html_inline"} else None
                seen.append((child.type, content, child.attrs.get("href"), child.attrs.get("title")))
    return seen


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_language_is_translated_and_all_else_stays(source, expected):
    draft = markdown.read(source)

    assert echoed(draft).content == source
    written = shouted(draft)
    assert written.content == expected
    assert written.notices == ()
    assert parsed(written.content) == parsed(source)  # with the markup of the source


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in DIALECTS], ids=[case[0] for case in DIALECTS])
def test_a_line_of_another_dialect_stays_on_its_own_but_for_its_title(source, expected):
    draft = markdown.read(source)

    assert echoed(draft).content == source
    assert shouted(draft) == (expected, ())


def test_elements_that_stay_are_shown_to_the_translator_and_breaks_are_line_breaks():
    units = markdown.read("a <kbd>Esc</kbd> b<br>c\n").units

    assert [unit.text for unit in units] == ['a <ph id="1">Esc</ph> b<x id="2" ctype="lb"/>c']


def test_a_unit_is_the_text_of_a_block_with_its_markup_as_tags():
    draft = markdown.read("# T\n\nRun **`make`** in\n[the *shop*](u) &lt;\n\n<p>x</p>\n")

    assert [(unit.text, unit.format, unit.line) for unit in draft.units] == [
        ("T", TextFormat.XLIFF, 1),
        ('Run <g id="1"><ph id="2">make</ph></g> in <g id="3">the <g id="4">shop</g></g> &lt;', TextFormat.XLIFF, 3),
        ("<p>x</p>", TextFormat.HTML, 6),
    ]


# Name, source, translations of its units, what is written.
WRITTEN = [
    ("quote in a title", '!!! tip "a"\n', ['see "b"'], "!!! tip \"see 'b'\"\n"),
    (
        "moved marks",
        "the **red** [car](u) `x` <b@c.de>\n",
        ['<x id="4"/> <ph id="3">x</ph> das <g id="2">Auto</g> <g id="1">rot</g>'],
        "<b@c.de> `x` das [Auto](u) **rot**\n",
    ),
    ("width of the quote", "> one two of\n> three\n", ["eins zwei drei vier"], "> eins zwei\n> drei vier\n"),
    ("width of the item", "- one\n  two\n", ["eins zwei"], "- eins\n  zwei\n"),
    ("long line", "one\n", ["eins zwei drei " * 20], "eins zwei drei " * 19 + "eins zwei drei\n"),
    ("pipe in a cell", "| a |\n|---|\n", ["a | b"], "| a \\| b |\n|---|\n"),
    ("spaces that would end emphasis", "a **b** c\n", ['a<g id="1"> b </g>c'], "a **b** c\n"),
    ("emphasis inside a word", "a _b_ c\n", ['a<g id="1">b</g>c'], "a*b*c\n"),
]


@pytest.mark.parametrize(
    ("source", "translations", "written"), [case[1:] for case in WRITTEN], ids=[case[0] for case in WRITTEN]
)
def test_a_translation_is_written_in_the_markup_of_its_source(source, translations, written):
    assert answered(markdown.read(source), *translations) == written


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("- eins", "\\- eins"),
        ("1. eins", "1\\. eins"),
        ("# eins", "\\# eins"),
        ("&gt; eins", "\\> eins"),
        ("*eins*", "\\*eins\\*"),
        ("`eins`", "\\`eins\\`"),
        ("&lt;b&gt;", "\\<b\\>"),
        ("[eins](u)", "\\[eins\\]\\(u\\)"),
        ("[a]: b", "\\[a]: b"),
        ("&amp;amp;", "\\&amp\\;"),
        ("2 * 3 &lt; 4", "2 * 3 < 4"),
    ],
)
def test_text_that_would_be_read_as_markup_is_escaped(translation, written):
    assert answered(markdown.read("one\n"), translation) == f"{written}\n"


def test_a_wrapped_line_does_not_begin_a_list():
    text = answered(markdown.read("aaaa bbbb\ncccc\n"), "aaaa bbbb - c")

    assert parsed(text) == parsed("a\n")


@pytest.mark.parametrize(
    "translation",
    ["a b", '<g id="1">a', 'a</g> <g id="1">b', '<g id="1">a</g> <x id="2"/>', '<g id="1"></g>a', "<b>a</b>"],
)
def test_a_block_whose_marks_are_lost_stays_as_it_was_with_a_notice(translation):
    written = markdown.read("x\n\na **b**\n").write([translation_of("y"), translation_of(translation)])

    assert written.content == "y\n\na **b**\n"
    assert written.notices == (Notice(3),)


@pytest.mark.parametrize("translation", ["a `x` `x`", "a `x`", "a `x` `y` `y`", "a `x` `Y`"])
def test_code_that_is_lost_or_doubled_is_noticed(translation):
    written = markdown.read("a `x` `y`\n").write([translation_of(translation)])

    assert written == ("a `x` `y`\n", (Notice(1),))


def test_a_block_that_would_change_the_others_stays_and_they_are_translated():
    blocks = [f"Paragraph {number}." for number in range(60)]

    written = shouted(markdown.read("\n\n".join([*blocks, "[Toc]", *blocks])))  # "[TOC]" is of another dialect

    assert written.content == "\n\n".join([*blocks, "[Toc]", *blocks]).upper().replace("[TOC]", "[Toc]")
    assert written.notices == (Notice(121),)


# Lines of Markdown, some of them strange, joined in every way.
_LINES = st.sampled_from(
    [line for case in (*CASES, *DIALECTS) for line in case[1].splitlines()]
    + [
        "",
        "  ",
        ">",
        "- ",
        "1)",
        "```",
        "|",
        "|--|",
        "===",
        "[^1]:",
        "**a",
        "b**",
        "*a ~~b*",
        "<b>",
        "</b>",
        "\\",
        "&#x41;",
    ]
    + ["_a__b_", "`a", "![a", "[a](", "\ta", "> \ta", "-     a", "\x0b", "\u2028a", "\x00a"]
)
_TEXTS = st.one_of(
    st.lists(_LINES, max_size=12).map("\n".join),
    st.lists(_LINES, max_size=6).map("\r\n".join),
    st.text(alphabet="ab *_`[]()<>!#>-+|~\\&;:\n\t1.^", max_size=60),
)


@given(_TEXTS)
@settings(max_examples=150, deadline=None)
def test_every_text_comes_back_as_it_was(source):
    draft = markdown.read(source)

    assert echoed(draft).content == source
    assert draft.write([Translation(error=InternalError("broken"))] * len(draft.units)).content == source


@given(st.lists(_LINES, max_size=10).map("\n".join))
@settings(max_examples=100, deadline=None)
def test_no_mark_of_any_text_is_lost(source):
    marks = [kind for kind, *_ in parsed(source) if kind != "hardbreak"]

    assert [kind for kind, *_ in parsed(shouted(markdown.read(source)).content) if kind != "hardbreak"] == marks
