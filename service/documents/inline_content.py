"""What is in a paragraph of Office or OpenDocument: text of some format, and marks such as a link or a note's number.

Each is known by the pieces of its part that it is written as, so that what is not translated keeps its bytes.  Knows no
element's name.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from service.documents.draft import Source
from service.documents.inline import Format, Item, Mark
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
    """Return how atoms are written."""
    return tuple(piece for one in atoms for piece in (one.source if isinstance(one, Text) else one.pieces))


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
            items.append(Mark(TagKind.POINT, "", number, atom.text, pieces=source))
        elif isinstance(atom, Text):
            items += Mark(TagKind.OPEN, "", number, format=atom.format), atom.text, Mark(TagKind.CLOSE, "", number)
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
        return [Mark(TagKind.OPEN, "", pieces=begin), *inside, Mark(TagKind.CLOSE, "", pieces=end)]
    return [Mark(TagKind.POINT, "", shows="".join(one.text for one in texts_in(inside)), pieces=source_of(atoms))]
