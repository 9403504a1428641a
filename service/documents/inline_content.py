"""What is in a paragraph of Office or OpenDocument: text of some format, points such as a note's number, and links.

Each is known by the pieces of its part that it is written as, so that what is not translated keeps its bytes.  Knows no
element's name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from service.documents.inline_tags import Item, Mark
from service.documents.xml import MAX_DEPTH
from service.text.document import TagKind

# Fonts and styles of what is code: in a line of other text it comes back as it is.
CODE = re.compile(  # neither "Arial Unicode MS" nor "Barcode" nor "Consolidated"
    r"(?<![a-z])code|(?-i:(?<!Uni|Bar|Zip)(?<!Post)Code)|sourcecode|verbatim|preformat|teletype|"
    r"(?<!american )typewriter|keyboard|listing|quelltext|source_?(?:20_)?text|consolas?\b|console\b|courier|"
    r"\bmono(?!type)|mono\b|menlo",
    re.IGNORECASE,
)

ALONE = "alone"  # the key of text that is in no run
_SPACES = {" ", "\n"}  # look alike in most formats

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


def joined(atoms: Iterable[Atom]) -> list[Atom]:
    """Return the atoms with neighbours in one: texts that look alike, as a space does, and points that nobody sees."""
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
    return isinstance(atom, Point) and isinstance(last, Point) and atom.is_unseen and last.is_unseen


def _format_of(group: Sequence[Atom]) -> Format:
    """Return the format of neighbouring texts: that of the first which is no space."""
    first, second = texts_in(group[:1])[0], texts_in(group[1:2])
    return second[0].format if second and first.text in _SPACES else first.format


def _as_one(group: Sequence[Atom]) -> Atom:
    first = group[0]
    if isinstance(first, Text):
        return Text(_format_of(group), "".join(one.text for one in texts_in(group)), source_of(group))
    return first._replace(source=source_of(group)) if isinstance(first, Point) else first


def without_frame(atoms: list[Atom]) -> tuple[list[Source], list[Atom], list[Source]]:
    """Return what stands before the text, the text with what is in it, and what stands behind."""
    before: list[Source] = []
    after: list[Source] = []
    begin, end = 0, len(atoms)
    while begin < end:
        first, last = atoms[begin], atoms[end - 1]
        if isinstance(first, Point) and not first.shows:
            before.append(first.source)
            begin += 1
        elif isinstance(last, Point) and not last.shows:
            after.append(last.source)
            end -= 1
        elif isinstance(first, Container) and end - begin == 1:
            before.append(first.open)
            after.append(first.close)
            atoms, begin, end = first.inside, 0, len(first.inside)
        else:
            break
    return before, atoms[begin:end], after[::-1]


def texts_in(atoms: Sequence[Atom]) -> list[Text]:
    """Return all texts, those in containers, too."""
    found: list[Text] = []
    for atom in atoms:
        if isinstance(atom, Container):
            found += texts_in(atom.inside)
        elif isinstance(atom, Text):
            found.append(atom)
    return found


def main_format(atoms: Sequence[Atom]) -> Format:
    """Return the format that most of the characters have, code apart."""
    texts = texts_in(atoms)
    sizes = Counter[str]()
    for one in texts:
        sizes[one.format.key] += len(one.text) * (not one.format.is_code)
    key = max(sizes, key=lambda key: sizes[key])
    return next(one.format for one in texts if one.format.key == key)


def source_of(atoms: Sequence[Atom]) -> Source:
    """Return how atoms are written."""
    source: list[Span | str] = []
    for one in atoms:
        source += (*one.open, *source_of(one.inside), *one.close) if isinstance(one, Container) else one.source
    return tuple(source)


def marked(atoms: Sequence[Atom], known: dict[int, Atom]) -> list[Item]:
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


def with_fields(atoms: list[Atom]) -> list[Atom]:
    """Return the atoms with each field that ends among them as one: a link around its text, others as they are.

    Raises:
        ValueError: fields are nested too deeply.
    """
    done: list[Atom] = []
    begins: list[int] = []
    for atom in atoms:
        if isinstance(atom, Container):
            done.append(atom._replace(inside=with_fields(atom.inside)))
            continue
        done.append(atom)
        part = atom.field_part if isinstance(atom, Point) else ""
        if part == "begin":
            begins.append(len(done) - 1)
            if len(begins) > MAX_DEPTH:
                raise ValueError(f"fields are nested more than {MAX_DEPTH} deep")
        elif part == "end" and begins:
            begin = begins.pop()
            done[begin:] = [_field(done[begin:])]
    return done


def _field(atoms: list[Atom]) -> Atom:
    parts = [one.field_part if isinstance(one, Point) else "" for one in atoms]
    separate = parts.index("separate") if "separate" in parts else len(parts) - 1
    code = "".join(parts[1:separate]).strip()
    inside = atoms[separate + 1 : -1]
    if code.upper().startswith("HYPERLINK") and inside:
        return Container(source_of(atoms[: separate + 1]), inside, source_of(atoms[-1:]))
    return Point(source_of(atoms), "".join(one.text for one in texts_in(inside)))
