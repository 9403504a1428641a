"""Inline content: text with the markup in and around it, sent as the inline elements of XLIFF 1.2.

**Run** `make`[^1]        <g id="1">Run</g> <ph id="2">make</ph><x id="3"/>

In a paragraph of Office or OpenDocument each text has a format, and texts and marks are known by the pieces of their
part that they are written as, so that what is not translated keeps its bytes.  Knows no element's name.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import unescape
from typing import NamedTuple, TypeAlias

from service.documents.draft import DoesNotFit, Source
from service.documents.xml import MAX_DEPTH
from service.text.segments import TagKind


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
    source: str = ""  # as the format writes it
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


# Fonts and styles of what is code: in a line of other text it comes back as it is.
CODE = re.compile(  # neither "Arial Unicode MS" nor "Barcode" nor "Consolidated"
    r"(?<![a-z])code|(?-i:(?<!Uni|Bar|Zip)(?<!Post)Code)|sourcecode|verbatim|preformat|teletype|"
    r"(?<!american )typewriter|keyboard|listing|quelltext|source_?(?:20_)?text|consolas?\b|console\b|courier|"
    r"\bmono(?!type)|mono\b|menlo",
    re.IGNORECASE,
)

ALONE = "alone"  # the key of text that is in no run
_SPACES = {" ", "\n"}  # look alike in most formats


class Text(NamedTuple):
    """Text of one format."""

    format: Format
    text: str
    source: Source = ()  # in runs


Atom: TypeAlias = Text | Mark


def joined(atoms: Iterable[Atom]) -> list[Atom]:
    """Return the atoms with neighbours in one: texts that look alike, as a space does, and marks that nobody sees."""
    groups: list[list[Atom]] = []
    for atom in atoms:
        if groups and _is_alike(groups[-1], atom):
            groups[-1].append(atom)
        elif not isinstance(atom, Text) or atom.text:
            groups.append([atom])
    return [_as_one(group) for group in groups]


def _is_alike(group: Sequence[Atom], atom: Atom) -> bool:
    last = group[-1]
    if isinstance(atom, Text) and isinstance(last, Text):
        is_space = len(group) == 1 and last.text in _SPACES
        return is_space or atom.text in _SPACES or atom.format.key == _format_of(group).key
    return isinstance(atom, Mark) and isinstance(last, Mark) and _is_unseen(atom) and _is_unseen(last)


def _is_unseen(mark: Mark) -> bool:
    """Whether a mark is of no concern to the sentence."""
    return mark.kind is TagKind.POINT and not (mark.shows or mark.is_break or mark.field_part)


def _format_of(group: Sequence[Atom]) -> Format:
    """Return the format of neighbouring texts: that of the first which is no space."""
    first, second = texts_in(group[:1])[0], texts_in(group[1:2])
    return second[0].format if second and first.text in _SPACES else first.format


def _as_one(group: Sequence[Atom]) -> Atom:
    first = group[0]
    if isinstance(first, Text):
        return Text(_format_of(group), "".join(one.text for one in texts_in(group)), source_of(group))
    return first._replace(pieces=source_of(group))


def texts_in(atoms: Iterable[Atom]) -> list[Text]:
    """Return the texts."""
    return [atom for atom in atoms if isinstance(atom, Text)]


def source_of(atoms: Iterable[Atom]) -> Source:
    """Return how atoms are written; pieces that touch are one, since fields in fields hold those of all."""
    pieces: list[tuple[int, int] | str] = []
    for one in atoms:
        for piece in one.source if isinstance(one, Text) else one.pieces:
            last = pieces[-1] if pieces else ""
            if isinstance(piece, tuple) and isinstance(last, tuple) and last[1] == piece[0]:
                pieces[-1] = last[0], piece[1]
            else:
                pieces.append(piece)
    return tuple(pieces)


def main_format(atoms: Iterable[Atom], otherwise: Format) -> Format:
    """Return the format that most of the characters have, code apart; another one where there is no text."""
    sizes, formats = Counter[str](), dict[str, Format]()
    for one in texts_in(atoms):
        sizes[one.format.key] += len(one.text) * (not one.format.is_code)
        formats.setdefault(one.format.key, one.format)
    return formats[max(sizes, key=lambda key: sizes[key])] if sizes else otherwise


def _end_of_pair(atoms: Sequence[Atom], begin: int) -> int:
    """Return the place of the mark that ends the pair which begins there."""
    depth = 0
    for place in range(begin, len(atoms)):
        atom = atoms[place]
        if isinstance(atom, Mark):
            depth += (atom.kind is TagKind.OPEN) - (atom.kind is TagKind.CLOSE)
        if not depth:
            return place
    raise AssertionError("marks are in pairs")


def without_frame(atoms: Sequence[Atom]) -> tuple[Source, Sequence[Atom], Source]:
    """Return what stands before the text, the text with what is in it, and what stands behind."""
    begin, end = 0, len(atoms)
    while begin < end:
        first, last = atoms[begin], atoms[end - 1]
        if isinstance(first, Mark) and first.kind is TagKind.POINT and not first.shows:
            begin += 1
        elif isinstance(last, Mark) and last.kind is TagKind.POINT and not last.shows:
            end -= 1
        elif isinstance(first, Mark) and first.kind is TagKind.OPEN and _end_of_pair(atoms, begin) == end - 1:
            begin, end = begin + 1, end - 1
        else:
            break
    return source_of(atoms[:begin]), atoms[begin:end], source_of(atoms[end:])


def marked(atoms: Sequence[Atom], main: Format, write: Callable[[Format, str], Source]) -> list[Item]:
    """Return text and marks, which have numbers; the main format, of all and of each pair, needs no marks.

    Args:
        write: format, text -> elements.
    """
    items: list[Item] = []
    formats = [main]
    open_ids: list[int] = []
    number = 0
    for place, atom in enumerate(atoms):
        if isinstance(atom, Mark) and atom.kind is TagKind.CLOSE:
            formats.pop()
            items.append(atom._replace(id=open_ids.pop()))
            continue
        if isinstance(atom, Text) and atom.format.key == formats[-1].key and not atom.format.is_code:
            items.append(atom.text)
            continue
        number += 1
        if isinstance(atom, Text) and atom.format.is_code:
            source = atom.source or write(atom.format, atom.text)
            items.append(Mark(TagKind.POINT, id=number, shows=atom.text, pieces=source))
        elif isinstance(atom, Text):
            items += Mark(TagKind.OPEN, id=number, format=atom.format), atom.text, Mark(TagKind.CLOSE, id=number)
        elif atom.kind is TagKind.POINT:
            items.append(atom._replace(id=number))
        else:
            formats.append(main_format(atoms[place : _end_of_pair(atoms, place)], formats[-1]))
            items.append(atom._replace(id=number, format=formats[-1]))
            open_ids.append(number)
    return items


def with_fields(atoms: Iterable[Atom]) -> list[Atom]:
    """Return the atoms with each field as one, if it ends in its element: a link around its text, others as they are.

    Raises:
        ValueError: fields are nested too deeply.
    """
    done: list[Atom] = []
    begins: list[list[int]] = [[]]  # of fields, for each pair of marks that is open
    for atom in atoms:
        done.append(atom)
        if isinstance(atom, Text):
            continue
        if atom.kind is TagKind.OPEN:
            begins.append([])
        elif atom.kind is TagKind.CLOSE:
            begins.pop()
        elif atom.field_part == "begin":
            begins[-1].append(len(done) - 1)
            if len(begins[-1]) > MAX_DEPTH:
                raise ValueError(f"fields are nested more than {MAX_DEPTH} deep")
        elif atom.field_part == "end" and begins[-1]:
            begin = begins[-1].pop()
            done[begin:] = _field(done[begin:])
    return done


def _field(atoms: Sequence[Atom]) -> list[Atom]:
    code, separate, depth = "", len(atoms) - 1, 0
    for place, atom in enumerate(atoms[1:-1], start=1):
        if isinstance(atom, Mark):
            depth += (atom.kind is TagKind.OPEN) - (atom.kind is TagKind.CLOSE)
            if atom.field_part == "separate" and not depth:
                separate = place
                break
            code += "" if depth else atom.field_part
    inside = atoms[separate + 1 : -1]
    if code.strip().upper().startswith("HYPERLINK") and inside:
        begin, end = source_of(atoms[: separate + 1]), source_of(atoms[-1:])
        return [Mark(TagKind.OPEN, pieces=begin), *inside, Mark(TagKind.CLOSE, pieces=end)]
    return [Mark(TagKind.POINT, shows="".join(one.text for one in texts_in(inside)), pieces=source_of(atoms))]
