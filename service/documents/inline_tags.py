"""What is in a paragraph, and inline markup of any format as the inline elements of XLIFF 1.2, which the server knows.

    **Run** `make`[^1]        <g id="1">Run</g> <ph id="2">make</ph><x id="3"/>

In a paragraph is text of some format, points such as a note's number, and containers such as links.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import unescape
from typing import NamedTuple, TypeAlias

from service.text.document import TagKind


class Mark(NamedTuple):
    """Markup between words."""

    kind: TagKind
    source: str  # as the format writes it
    id: int  # the same for both ends of a pair; none is 0
    shows: str = ""  # what a reader sees of it, which is a part of the sentence
    is_break: bool = False  # whether it ends a line


Item: TypeAlias = str | Mark  # text without markup, or markup

ELEMENT = re.compile(
    r'<g id="(?P<open>\d+)">|(?P<close></g>)|<x id="(?P<point>\d+)"(?: ctype="lb")?/>'
    r'|<ph id="(?P<shows>\d+)">[^<>]*</ph>'
)
_HTML_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*)[^>]*?(?P<empty>/?)>", re.DOTALL)


class TagsLost(ValueError):
    """A translation has not exactly the marks of its source, or they are nested wrongly."""


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
        TagsLost: it has other marks than the source.
    """
    return decode_parts([text], items)[0]


def decode_parts(texts: Iterable[str], items: Iterable[Item]) -> list[list[Item]]:
    """Do as `decode` with a translation that is cut in parts; no cut is in a pair of marks."""
    left = {(item.kind, item.id): item for item in items if isinstance(item, Mark)}
    parts = [_decoded(text, left) for text in texts]
    if left:
        raise TagsLost(f"{len(left)} tags of the source are not in the translation")
    return parts


def _decoded(text: str, left: dict[tuple[TagKind, int], Mark]) -> list[Item]:
    """Return the items of a text, whose marks are taken out of those that are left; raises TagsLost."""
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
            raise TagsLost(f"the translation has {match[0]}, and the source has not, or not so often")
        found.append(left.pop(key))
    if open_ids:
        raise TagsLost(f"{len(open_ids)} tags of the translation have no end")
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
        raise TagsLost("the translation has a tag that the source has not")
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


ALONE = "alone"  # the key of text that is in no run
_JOINED = {" ", "\n"}  # look alike in most formats

Span: TypeAlias = tuple[int, int]
Source: TypeAlias = tuple[Span | str, ...]  # pieces of the part, and what stands between them


class Format(NamedTuple):
    """How some text looks."""

    key: str  # equal for what looks alike
    source: Source = ()  # a run's properties, or the start tags of spans
    family: str = ""  # of the paragraph: the prefix of its namespace
    prefix: str = ""  # with its colon, as it is written
    ends: str = ""  # of those spans
    is_code: bool = False


class Text(NamedTuple):
    """Text of one format."""

    format: Format
    text: str
    source: Source = ()  # in runs


class Point(NamedTuple):
    """An element that comes back as it is."""

    source: Source
    shows: str = ""  # what a reader sees of it, which is a part of the sentence
    is_break: bool = False
    field_part: str = ""  # begin, separate or end of a field; or what the field is

    @property
    def is_unseen(self) -> bool:
        """Whether it is of no concern to the sentence."""
        return not (self.shows or self.is_break or self.field_part)


class Container(NamedTuple):
    """An element around text, such as a link."""

    open: Source
    inside: "list[Atom]"
    close: Source


Atom: TypeAlias = Text | Point | Container


def add(atoms: "list[Atom]", atom: Atom) -> None:
    """Add an atom; text joins text of the same format, and a space takes that of the text before it."""
    last = atoms[-1] if atoms else None
    if (
        isinstance(atom, Text)
        and isinstance(last, Text)
        and (atom.format.key == last.format.key or atom.text in _JOINED or last.text in _JOINED)
    ):
        form = atom.format if last.text in _JOINED else last.format
        atoms[-1] = Text(form, last.text + atom.text, last.source + atom.source)
    elif isinstance(atom, Point) and isinstance(last, Point) and last.is_unseen and atom.is_unseen:
        atoms[-1] = last._replace(source=last.source + atom.source)
    elif not isinstance(atom, Text) or atom.text:
        atoms.append(atom)


def without_frame(atoms: "list[Atom]") -> "tuple[list[Source], list[Atom], list[Source]]":
    """Return what stands before the text, the text with what is in it, and what stands behind."""
    before: list[Source] = []
    after: list[Source] = []
    while atoms:
        first, last = atoms[0], atoms[-1]
        if isinstance(first, Point) and not first.shows:
            before.append(first.source)
            atoms = atoms[1:]
        elif isinstance(last, Point) and not last.shows:
            after.append(last.source)
            atoms = atoms[:-1]
        elif isinstance(first, Container) and len(atoms) == 1:
            before.append(first.open)
            after.append(first.close)
            atoms = first.inside
        else:
            break
    return before, atoms, after[::-1]


def texts_in(atoms: "Sequence[Atom]") -> list[Text]:
    """Return all texts, those in containers, too."""
    found: list[Text] = []
    for atom in atoms:
        if isinstance(atom, Container):
            found += texts_in(atom.inside)
        elif isinstance(atom, Text):
            found.append(atom)
    return found


def main_format(atoms: "Sequence[Atom]") -> Format:
    """Return the format that most of the characters have, code apart."""
    texts = texts_in(atoms)
    sizes = Counter[str]()
    for one in texts:
        sizes[one.format.key] += len(one.text) * (not one.format.is_code)
    key = max(sizes, key=lambda key: sizes[key])
    return next(one.format for one in texts if one.format.key == key)


def source_of(atoms: "Sequence[Atom]") -> Source:
    """Return how atoms are written."""
    source: list[Span | str] = []
    for one in atoms:
        source += (*one.open, *source_of(one.inside), *one.close) if isinstance(one, Container) else one.source
    return tuple(source)


def marked(atoms: "Sequence[Atom]", known: "dict[int, Atom]") -> list[Item]:
    """Return text and marks, and note the atoms of these by their ids; the main format needs no marks."""
    items: list[Item] = []
    base = main_format(atoms)
    for atom in atoms:
        if isinstance(atom, Text) and atom.format.key == base.key and not atom.format.is_code:
            items.append(atom.text)
            continue
        number = len(known) + 1
        known[number] = atom
        if isinstance(atom, Point):
            items.append(Mark(TagKind.POINT, "", number, shows=atom.shows, is_break=atom.is_break))
        elif isinstance(atom, Text) and atom.format.is_code:
            items.append(Mark(TagKind.POINT, "", number, shows=atom.text))
        else:
            inside = marked(atom.inside, known) if isinstance(atom, Container) else [atom.text]
            items += Mark(TagKind.OPEN, "", number), *inside, Mark(TagKind.CLOSE, "", number)
    return items
