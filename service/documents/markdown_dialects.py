"""Lines that CommonMark takes for text and other dialects of Markdown do not: containers, templates, attributes, tabs.

    ::: tip A title      !!! note "A title"      === "A tab"      {{% notice %}}      {% endif %}      {: .wide }

Such a line stays as it is, but for its title.  For the parser of the rest there is a line in its place that ends the
block before it, and after which the lines that belong to it stand where they do.
"""

import re
from typing import NamedTuple

_NOTHING = "<!-- -->"  # a block by itself, in any other block
_ITEM = f"-   {_NOTHING}"  # lines below it are indented by four
_FIRST = frozenset("!/:<=?[i{")
_BEFORE = r"(?P<before>(?:[ \t]|>)*)"
_CONTAINER = re.compile(
    rf"{_BEFORE}(?::{{3,}}|/{{3}}(?=[ \t]*(?:\Z|[a-z-]+[ \t]*(?:\||\Z))))[ \t]*"
    r"(?:\{[^{}]*\}|[\w./+-]+)?(?:[ \t]*\|)?[ \t]*"
    r"(?:\[(?P<label>[^\[\]]+)\]|(?P<title>[^\s{\[:][^{}]*?))?[ \t]*(?:\{[^{}]*\})?[ \t]*:*[ \t]*"
)
_WITH_BODY = re.compile(
    rf"{_BEFORE}(?:(?:!!!|\?\?\?)\+?[ \t]+(?:[a-z][\w-]*[ \t]*){{0,4}}(?:\"(?P<title>[^\"]*)\")?"
    r"|===[!+]?[ \t]+\"(?P<tab>[^\"]+)\")[ \t]*"
)
_WITHOUT_TITLE = re.compile(
    rf"{_BEFORE}(?:(?:\{{\{{[^{{}}]*\}}\}}|\{{%(?:[^%]|%(?!\}}))*%\}}|<%[^%]*%>)[ \t]*)+"
    rf"|{_BEFORE.replace('before', 'above')}(?:\{{(?::[^{{}}]*|[ \t]*[#.][^{{}}]*)\}}|\[\[?_?(?:TOC|toc)_?\]?\]"
    r"|import[ \t][^'\"]*from[ \t]+['\"][^'\"]+['\"];?|<<<[ \t]*\S+)[ \t]*"
)


class DialectLine(NamedTuple):
    """A line of another dialect."""

    in_its_place: str  # for the parser
    begin: int  # of its title in the line
    end: int  # the same: it has none


def dialect_line(line: str) -> DialectLine | None:
    """Return what a line of another dialect is to the parser, and where its title is; None: the line is CommonMark."""
    if line.lstrip(" \t>")[:1] not in _FIRST:
        return None
    if match := _WITH_BODY.fullmatch(line):
        place = match.span("title") if match["title"] is not None else match.span("tab")
        return DialectLine(match["before"] + _ITEM, *(place if place[0] >= 0 else (0, 0)))
    if match := _CONTAINER.fullmatch(line):
        place = match.span("label") if match["label"] else match.span("title")
        return DialectLine(match["before"] + _NOTHING, *(place if place[0] >= 0 else (0, 0)))
    if match := _WITHOUT_TITLE.fullmatch(line):
        return DialectLine((match["before"] or match["above"] or "") + _NOTHING, 0, 0)
    return None
