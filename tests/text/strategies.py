"""Random texts for Hypothesis, as cases: what they keep is known by construction."""

import string

from hypothesis import strategies as st

from service.records import TextFormat
from tests.text.corpus import Case

WORDS = (
    "the",
    "old",
    "door",
    "is",
    "open",
    "Anna",
    "we",
    "walk",
    "home",
    "never",
    "Dr.",
    "e.g.",
    "5",
    "it's",
    "café",
    "naïve",
)
ENDS = (".", "!", "?", "...", "")
BREAKS = (" ", "\n", "\n\n", "\r\n", "\n  ", "  \n", "\t", "\n- ", "\n2. ", "\u2028", " \n\n\n ")
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6)
NUMBERS = st.integers(0, 99).map(str)
EMOJI = (
    "\U0001f600",
    "\u2764\ufe0f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f44d\U0001f3fd",
    "\U0001f1ef\U0001f1f5",
    "1\ufe0f\u20e3",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
)
SPANS = st.one_of(
    st.builds("https://{}.example/{}?{}={}".format, NAMES, NAMES, NAMES, NUMBERS),
    st.builds("{}.{}@{}.example".format, NAMES, NAMES, NAMES),
    st.sampled_from(["%s", "%d", "%1$s", "%.2f", "%@", "%%"]),
    st.builds("%({})s".format, NAMES),
    st.builds("%{}-{}%".format, NAMES, NAMES),
    st.builds("*|{}|*".format, NAMES),
    st.builds('[{} ids="{}"]'.format, NAMES, NUMBERS),
    st.sampled_from(["dd.MM.yyyy", "%Y-%m-%d %H:%M", "Ctrl+Alt+Del", "F5", "[[a|b c]]", "4eC39HqLyjWDarjtT1zdp7dc"]),
    st.builds("{{{}}}".format, NAMES),
    st.builds("{{{{ {}.{} }}}}".format, NAMES, NAMES),
    st.builds("${{{}}}".format, NAMES),
    st.builds("{{{}, plural, one {{# {}}} other {{# {}}}}}".format, NAMES, NAMES, NAMES),
    st.builds("`{} {}`".format, NAMES, NAMES),
    st.builds("v{}.{}.{}".format, NUMBERS, NUMBERS, NUMBERS),
    st.sampled_from(EMOJI),
    st.sampled_from("€£→★漢字\U00020bb7"),
)


@st.composite
def plain_cases(draw: st.DrawFn) -> Case:
    """A text of sentences with protected spans in them, and all kinds of white space between and around them."""
    spans: list[str] = []

    def token() -> str:
        if draw(st.integers(0, 3)):
            return draw(st.sampled_from(WORDS))
        spans.append(draw(SPANS))
        return spans[-1]

    def sentence() -> str:
        return " ".join(token() for _ in range(draw(st.integers(1, 8)))) + draw(st.sampled_from(ENDS))

    text = draw(st.sampled_from(["", *BREAKS]))
    for _ in range(draw(st.integers(1, 4))):
        text += sentence() + draw(st.sampled_from(BREAKS))
    return Case("random", text if draw(st.booleans()) else text.strip(), keeps=tuple(dict.fromkeys(spans)))


INLINE_TAGS = ("b", "i", "em", "span", "a", "u", "sup")
BLOCK_TAGS = ("p", "div", "li", "h1", "td", "blockquote")
ATTRIBUTES = (
    "",
    "",
    "",
    ' class="x y"',
    " href='/x?a=1&amp;b=2'",
    ' title="the old door"',
    ' data-a="1 > 0"',
    " hidden",
)
ATOMS = ("<br>", "<br/>", '<img src="a.png" alt="an old door">', "<!-- a comment -->", "<code>x &lt; y</code>", "<wbr>")
ENTITIES = ("&amp;", "&lt;", "&gt;", "&nbsp;", "&quot;", "&#8364;", "&eacute;", "&hellip;")
STAYING = (
    "<script>if (a < b) { c(); }</script>",
    "<style>p > b {}</style>",
    "<pre>\n a  b\n</pre>",
    '<i translate="no">the door</i>',
)


@st.composite
def elements(draw: st.DrawFn, inside: st.SearchStrategy[str], names: tuple[str, ...]) -> str:
    name = draw(st.sampled_from(names))
    return f"<{name}{draw(st.sampled_from(ATTRIBUTES))}>{draw(inside)}</{name}>"


_SPAN = "\ue000"  # where one is put in later
PIECES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([" ", "\n", ". ", "! ", ", "]),
    st.sampled_from(ENTITIES),
    st.sampled_from(ATOMS),
    st.just(_SPAN),
)
INLINE = st.recursive(
    PIECES, lambda inner: elements(st.lists(inner, max_size=5).map(" ".join), INLINE_TAGS), max_leaves=12
)
PHRASES = st.lists(INLINE, max_size=8).map(" ".join)
BLOCKS = st.recursive(
    elements(PHRASES, BLOCK_TAGS) | st.sampled_from(STAYING),
    lambda inner: elements(st.lists(inner, max_size=4).map("\n".join), ("div", "section", "ul")),
    max_leaves=8,
)


@st.composite
def html_cases(draw: st.DrawFn) -> Case:
    """Well-formed HTML of blocks and inline tags, with protected spans in its text."""
    template = draw(PHRASES | BLOCKS).split(_SPAN)
    spans = draw(st.lists(SPANS, min_size=len(template) - 1, max_size=len(template) - 1))
    text = template[0] + "".join(span + after for span, after in zip(spans, template[1:], strict=True))
    return Case("random", text, TextFormat.HTML, keeps=tuple(dict.fromkeys(spans)))


SOUP = [
    "<",
    ">",
    "</",
    "/>",
    "<b",
    "<b>",
    "</b>",
    "<p>",
    "</p>",
    "<i ",
    '="',
    '"',
    "'",
    "&",
    "&amp",
    ";",
    "&#",
    "&#x41;",
    "<!--",
    "-->",
    "<!",
    "<?",
    "?>",
    "<![CDATA[",
    "]]>",
    "<script>",
    "</script>",
    "<pre>",
    "</pre>",
    "<br/>",
    "<code>",
    "</code>",
    'alt="',
    "title=",
    ' translate="no"',
    "door",
    "The door is open. ",
    " ",
    "\n",
    "\x00",
    "é",
    "€",
    "😀",
    "{x}",
]
soups = st.lists(st.sampled_from(SOUP), max_size=30).map("".join)
