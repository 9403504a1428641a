"""Inline markup of any format as the inline elements of XLIFF 1.2, which the server knows.

**Run** `make`[^1]        <g id="1">Run</g> <ph id="2">make</ph><x id="3"/>
"""

import re
from collections.abc import Iterable
from html import unescape
from typing import NamedTuple, TypeAlias

from service.documents.draft import DoesNotFit, Source
from service.text.document import TagKind


class Format(NamedTuple):
    """How some text of Office or OpenDocument looks."""

    key: str  # equal for what looks alike
    source: Source = ()  # a run's properties, or the start tags of spans
    family: str = ""  # of the paragraph: the prefix of its namespace
    prefix: str = ""  # with its colon, as it is written
    ends: str = ""  # of those spans
    is_code: bool = False


class Mark(NamedTuple):
    """Markup between words."""

    kind: TagKind
    source: str  # as the format writes it
    id: int = 0  # the same for both ends of a pair; none is 0 once it is in a unit
    shows: str = ""  # what a reader sees of it, which is a part of the sentence
    is_break: bool = False  # whether it ends a line
    # Of Office and OpenDocument, in place of `source`:
    pieces: Source = ()
    format: Format | None = None  # of the text in a pair
    field_part: str = ""  # begin, separate or end of a field; or what the field is


Item: TypeAlias = str | Mark  # text without markup, or markup

ELEMENT = re.compile(
    r'<g id="(?P<open>\d+)">|(?P<close></g>)|<x id="(?P<point>\d+)"(?: ctype="lb")?/>'
    r'|<ph id="(?P<shows>\d+)">[^<>]*</ph>'
)
_HTML_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*)[^>]*?(?P<empty>/?)>", re.DOTALL)


def escaped(text: str) -> str:
    """Return the text with character references for what would be markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encode(items: Iterable[Item]) -> str:
    """Return the text of a unit in TextFormat.XLIFF."""
    return "".join(escaped(item) if isinstance(item, str) else _element(item) for item in items)


def _element(mark: Mark) -> str:
    if mark.kind is TagKind.CLOSE:
        return "</g>"
    if mark.shows:
        return f'<ph id="{mark.id}">{escaped(mark.shows)}</ph>'
    if mark.is_break:
        return f'<x id="{mark.id}" ctype="lb"/>'
    return f'<g id="{mark.id}">' if mark.kind is TagKind.OPEN else f'<x id="{mark.id}"/>'


def decode(text: str, items: Iterable[Item]) -> list[Item]:
    """Return a translation with the marks of its source.

    Args:
        text: translation of `encode(items)`.

    Raises:
        DoesNotFit: it has other marks than the source.
    """
    return decode_parts([text], items)[0]


def decode_parts(texts: Iterable[str], items: Iterable[Item]) -> list[list[Item]]:
    """Do as `decode` with a translation that is cut in parts; no cut is in a pair of marks."""
    left = {(item.kind, item.id): item for item in items if isinstance(item, Mark)}
    parts = [_decoded(text, left) for text in texts]
    if left:
        raise DoesNotFit(f"{len(left)} tags of the source are not in the translation")
    return parts


def _decoded(text: str, left: dict[tuple[TagKind, int], Mark]) -> list[Item]:
    """Return the items of a text, whose marks are taken out of those that are left; raises DoesNotFit."""
    found: list[Item] = []
    open_ids: list[int] = []
    done = 0
    for match in ELEMENT.finditer(text):
        found.append(_unescaped(text[done : match.start()]))
        done = match.end()
        if match["close"]:
            key = (TagKind.CLOSE, open_ids.pop() if open_ids else 0)
        elif match["open"]:
            key = (TagKind.OPEN, int(match["open"]))
            open_ids.append(key[1])
        else:
            key = (TagKind.POINT, int(match["point"] or match["shows"]))
        if key not in left:
            raise DoesNotFit(f"the translation has {match[0]}, and the source has not, or not so often")
        found.append(left.pop(key))
    if open_ids:
        raise DoesNotFit(f"{len(open_ids)} tags of the translation have no end")
    return merged([*found, _unescaped(text[done:])])


def merged(items: Iterable[Item]) -> list[Item]:
    """Return the items with adjacent texts in one, and without empty ones."""
    result: list[Item] = []
    for item in items:
        if isinstance(item, str) and result and isinstance(last := result[-1], str):
            result[-1] = last + item
        elif item:
            result.append(item)
    return result


def _unescaped(text: str) -> str:
    if "<" in text:
        raise DoesNotFit("the translation has a tag that the source has not")
    return unescape(text)


def with_html_pairs(items: list[Item]) -> list[Item]:
    """Return the items with pairs where HTML tags, which are points so far, open and close inside the same markup."""
    paired = list(items)
    stack: list[tuple[str, int]] = []  # name of an HTML tag, or nothing for other markup; place
    for place, item in enumerate(items):
        if isinstance(item, str):
            continue
        tag = _HTML_TAG.fullmatch(item.source) if item.kind is TagKind.POINT else None
        if item.kind is TagKind.OPEN:
            stack.append(("", place))
        elif item.kind is TagKind.CLOSE:
            while stack.pop()[0]:  # HTML tags without an end
                pass
        elif tag and tag["end"]:
            if stack and stack[-1][0] == tag["name"].lower():
                begin = stack.pop()[1]
                opened = items[begin]
                assert isinstance(opened, Mark)
                paired[begin] = opened._replace(kind=TagKind.OPEN)
                paired[place] = item._replace(kind=TagKind.CLOSE, id=opened.id)
        elif tag and not tag["empty"]:
            stack.append((tag["name"].lower(), place))
    return paired
