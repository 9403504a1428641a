"""What is in a paragraph: text of some format, points such as a note's number, and containers such as links."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from service.documents.inline_tags import Item, Mark
from service.text.document import TagKind

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
