"""A part of an Office or OpenDocument file as paragraphs to translate, with what is in their lines as inline tags.

    <w:r>A </w:r><w:r rsid="1"><b/>bold</w:r><w:r rsid="2"><b/>er</w:r><w:r> cat</w:r>   ->   A <g id="1">bolder</g> cat

Text of one format is joined, however many runs or spans it was cut into; the format that most of a paragraph has needs
no tag.  A paragraph whose translation is its text stays byte for byte; of another one its runs are written anew, and
everything else in it keeps its bytes.  What elements mean is said by a `Vocabulary`; knows no format of its own.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Self

from service.documents.draft import Draft, Notice, Slot, Unit, Written, has_language, text_of
from service.documents.inline_content import (
    ALONE,
    CODE,
    Atom,
    Container,
    Format,
    Point,
    Source,
    Text,
    joined,
    main_format,
    marked,
    texts_in,
    with_fields,
    without_frame,
)
from service.documents.inline_tags import Item, TagsLost, decode, encode, escaped
from service.documents.package import Said
from service.documents.xml import Element, Tag, attributes_at, element_of, pieces, prefix_at
from service.records import TextFormat, Translation, WarningKind
from service.text.document import TagKind

_EMPTY = re.compile(r"<[^\s<>/]+\s*/>|<[^\s<>]+\s*>\s*</[^<>]+>")
_QUOTED = re.compile(r'"((?:[^"]|"")*+)(?:"|\Z)')
MAX_PLACES = 500_000  # texts, and what says a language; 1,000 pages have a fifth of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Elements by what they mean for a translation, and how text is written."""

    namespaces: Mapping[str, str]
    paragraphs: frozenset[str]
    write: Callable[[Format, str, str], str]  # format, what its properties are now, text -> elements
    runs: frozenset[str] = frozenset()  # hold properties, and text elements among others
    properties: frozenset[str] = frozenset()  # of runs
    texts: frozenset[str] = frozenset()  # hold text
    spans: frozenset[str] = frozenset()  # hold text and other spans, and are its format
    containers: Mapping[str, str] = field(default_factory=dict)  # hold runs; the element in it that does, or ""
    characters: Mapping[str, str] = field(default_factory=dict)  # elements that are characters
    ruby: Mapping[str, str] = field(default_factory=dict)  # text with its reading; the element in it that is the text
    shown: frozenset[str] = frozenset()  # come back as they are; their text is a part of the sentence
    dropped: frozenset[str] = frozenset()  # mean nothing once the text is another one
    skipped: frozenset[str] = frozenset()  # are not looked into
    groups: frozenset[str] = frozenset()  # are taken with what is in them
    plain: frozenset[str] = frozenset()  # their content is a text
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attributes whose values are texts
    languages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attributes that say the language; or ""
    no_format: re.Pattern[str] | None = None  # in the properties of a run, what makes no difference to a reader
    space: re.Pattern[str] | None = None  # what one space is written as; None: all white space counts


def names(**by_prefix: str) -> frozenset[str]:
    """Return names of elements, which are given by their prefixes with spaces between them."""
    return frozenset(f"{prefix}:{name}" for prefix, given in by_prefix.items() for name in given.split())


@dataclass(slots=True)
class Place:
    """What is written anew: a paragraph, a text or an attribute."""

    begin: int
    end: int
    items: list[Item] = field(default_factory=list)
    atoms: dict[int, Atom] = field(default_factory=dict)  # by the ids of marks
    before: list[Source] = field(default_factory=list)
    after: list[Source] = field(default_factory=list)
    base: Format | None = None  # None: plain text


class PartReader:
    """Reads one part; `places` are in the order of their ends, so that what is in a paragraph comes before it."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        """Read nothing yet."""
        self.text = text
        self.places: list[Place | Said] = []
        self.languages: list[Said] = []
        self._words = vocabulary
        self._keys: dict[str, tuple[str, bool]] = {}  # properties as they are written -> key, whether it is code
        self._knows_code = True

    def is_code(self, name: str) -> bool:
        """Whether a style or font of this name is for code."""
        return self._knows_code and bool(CODE.search(name))

    def read(self, *, is_main: bool = False) -> Self:
        """Find all places; raises ValueError.

        Args:
            is_main: whether the part has the text of the file: where all of that looks like code, as in a letter that
                was typed as plain text, it is text.
        """
        self._find_places()
        if is_main and not any(isinstance(place, Place) and place.base for place in self.places):
            self.places, self.languages, self._keys, self._knows_code = [], [], {}, False
            self._find_places()
        return self

    def _find_places(self) -> None:
        words, rest = self._words, pieces(self.text, self._words.namespaces)
        for piece in rest:
            if len(self.places) > MAX_PLACES:
                raise ValueError(f"the file has more than {MAX_PLACES:,} texts and marks of language")
            if isinstance(piece, str) or not piece.is_start:
                continue
            if piece.name in words.skipped:
                element_of(piece, rest)
            elif piece.name in words.paragraphs or piece.name in words.plain or piece.name in words.groups:
                self.take(element_of(piece, rest))
            else:
                self.start(piece)

    def start(self, tag: Tag) -> None:
        """Take in what the attributes of a start tag say."""
        named, languages = self._words.named.get(tag.name, ()), self._words.languages.get(tag.name, ())
        if not named and not languages:
            return
        found = attributes_at(self.text, tag.begin, tag.end)
        language = next((one.value for name, one in found.items() if name.rpartition(":")[2] in languages), "")
        for name, attribute in found.items():
            local = name.rpartition(":")[2]
            if local in languages:
                self._say(local, language, attribute.begin, attribute.end)
            elif local in named:
                self.take_text(attribute.begin, attribute.end)

    def _say(self, name: str, language: str, begin: int, end: int) -> None:
        said = Said(name, language, begin, end, self.text[begin:end])
        self.places.append(said)
        self.languages.append(said)

    def take(self, node: Element) -> None:
        """Take in an element and what is in it, from the innermost on."""
        if node.name in self._words.skipped:
            return
        self.start(Tag(node.name, node.begin, node.content, is_start=True, is_end=False))
        for child in node.children:
            if isinstance(child, Element):
                self.take(child)
        if "" in self._words.languages.get(node.name, ()):
            self._say("", node.text, node.content, node.content_end)
        elif node.name in self._words.plain:
            self.take_text(node.content, node.content_end)
        elif node.name in self._words.paragraphs and self.is_translated(node):
            self._take_paragraph(node)

    def take_text(self, begin: int, end: int) -> None:
        """Take in a text; one with elements or CDATA in it stays."""
        text = unescape(self.text[begin:end])
        if has_language(text) and "<" not in self.text[begin:end]:
            self.places.append(Place(begin, end, [text]))

    def is_translated(self, paragraph: Element) -> bool:
        """Whether a paragraph is language at all."""
        return True

    def _take_paragraph(self, node: Element) -> None:
        content, children = node.content, node.children
        for number, child in enumerate(children):
            if isinstance(child, Element) and child.name.endswith(":pPr"):
                content, children = child.end, children[number + 1 :]
                break
        prefix = prefix_at(self.text, node.begin)
        place = Place(content, node.content_end)
        atoms = with_fields(self._atoms(children, Format("", (), node.name.partition(":")[0], prefix)))
        place.before, atoms, place.after = without_frame(atoms)
        if has_language("".join(one.text for one in texts_in(atoms) if not one.format.is_code)):
            place.base = main_format(atoms)
            place.items = marked(atoms, place.atoms)
            self.places.append(place)

    def _atoms(self, children: Sequence["Element | str"], around: Format) -> list[Atom]:
        """Return what is in a paragraph, a container or spans."""
        return joined(self._pieces(children, around))

    def _pieces(self, children: Sequence["Element | str"], around: Format) -> Iterator[Atom]:
        words = self._words
        for child in children:
            if isinstance(child, str):
                if words.spans:
                    yield Text(around, self._spaced(child))
            elif child.name in words.runs:
                yield from self._run(child, around)
            elif child.name in words.texts:  # without a run
                yield Text(around._replace(key=ALONE), self._spaced(child.text))
            elif child.name in words.spans:
                yield from self._atoms(child.children, self._span(child, around))
            elif child.name in words.characters:
                yield Text(around, words.characters[child.name] * self.repeats(child))
            elif child.name in words.ruby:
                yield Text(around, self._spaced(self._base(child)))
            elif child.name in words.containers:
                yield self._container(child, words.containers[child.name], around)
            elif child.name not in words.dropped:
                shows = child.text if child.name in words.shown else ""
                yield Point((*around.source, (child.begin, child.end), around.ends), shows)

    def _spaced(self, text: str) -> str:
        return text if self._words.space is None else self._words.space.sub(" ", text)

    def _base(self, ruby: Element) -> str:
        """Return text without its reading, which says nothing once the text is in another language."""
        base = self._words.ruby[ruby.name]
        return "".join(one.text for one in ruby.elements if one.name == base)

    def repeats(self, _: Element) -> int:
        """Return how many of its characters an element stands for."""
        return 1

    def _run(self, run: Element, around: Format) -> Iterator[Atom]:
        words, form = self._words, around
        for child in run.children:
            if isinstance(child, str):
                continue
            if child.name in words.properties:
                key, is_code = self._key(self.text[child.begin : child.end])
                own: Source = ((child.begin, child.end),) if key else ()
                form = around._replace(key=key, source=own, is_code=is_code)
                continue
            source: Source = (
                (run.begin, run.content),
                *form.source,
                (child.begin, child.end),
                (run.content_end, run.end),
            )
            if child.name in words.texts:
                yield Text(form, self._spaced(child.text), source)
            elif child.name in words.ruby:
                yield Text(form, self._base(child), source)
            elif child.name in words.characters and not self.is_break(child):
                yield Text(form, words.characters[child.name], source)
            elif child.name not in words.dropped:
                shows = child.text if child.name in words.shown else ""
                yield Point(source, shows, self.is_break(child), self.field_part(child))

    def is_break(self, _: Element) -> bool:
        """Whether an element in a run ends a line and comes back as it is."""
        return False

    def field_part(self, _: Element) -> str:
        """Return which part of a field an element in a run is."""
        return ""

    def _key(self, properties: str) -> tuple[str, bool]:
        found = self._keys.get(properties)
        if found is None:
            key = self._words.no_format.sub("", properties) if self._words.no_format else properties
            key = "" if _EMPTY.fullmatch(key) else key
            found = self._keys[properties] = key, self.is_code(key)
        return found

    def _span(self, span: Element, around: Format) -> Format:
        key, is_code = self.span_format(span)
        if not key:
            return around
        name = self.text[span.begin + 1 : span.content].split()[0].rstrip(">")
        source = (*around.source, (span.begin, span.content))
        ends = f"</{name}>" + around.ends
        return Format(around.key + key, source, around.family, around.prefix, ends, around.is_code or is_code)

    def span_format(self, _: Element) -> tuple[str, bool]:
        """Return what makes a span look as it does, and whether that is code; nothing where a format has no spans."""
        return "", False

    def _container(self, node: Element, inner: str, around: Format) -> Atom:
        """Return an element around runs; one that holds its text otherwise comes back as it is."""
        whole = (*around.source, (node.begin, node.end), around.ends)
        found = next((one for one in node.elements if one.name == inner), None) if inner else node
        if found is None or self.is_chosen(node):
            return Point(whole, node.text)
        inside = self._atoms(found.children, around)
        if not texts_in(inside):
            return Point(whole)
        return Container(((node.begin, found.content),), inside, ((found.content_end, node.end),))

    def is_chosen(self, _: Element) -> bool:
        """Whether the text of a container comes from elsewhere, such as from a list."""
        return False

    def draft(self) -> Draft:
        """Return the draft of the part."""
        translated = [place for place in self.places if isinstance(place, Place)]
        units = tuple(
            Unit(encode(place.items), TextFormat.XLIFF, number) for number, place in enumerate(translated, start=1)
        )
        return Draft(units, lambda translations: self._write(units, translations))

    def _write(self, units: Sequence[Unit], translations: Sequence[Translation]) -> Written:
        answers = iter(zip(units, translations, strict=True))
        slots: list[Slot] = []  # in order; those in a place are the last ones when its turn comes
        notices: list[Notice] = []
        for place in self.places:
            if isinstance(place, Said):
                slots.append(Slot(place.begin, place.end, place.written))
                continue
            unit, translation = next(answers)
            if text_of(unit, translation) == unit.text:
                continue
            try:
                items = decode(translation.text, place.items)
            except TagsLost:
                notices.append(Notice(WarningKind.NOT_TRANSLATED, unit.line))
                continue
            first = len(slots)
            while first and slots[first - 1].begin >= place.begin:
                first -= 1
            inner = _Filler(self.text, slots[first:])
            slots[first:] = [Slot(place.begin, place.end, self._written(place, items, inner))]
        return Written(_Filler(self.text, slots).between(0, len(self.text)), tuple(notices))

    def _written(self, place: Place, items: Sequence[Item], inner: "_Filler") -> str:
        if place.base is None:
            text = escaped("".join(item for item in items if isinstance(item, str)))
            return text.replace('"', "&quot;").replace("\n", "&#10;")
        write, formats = self._words.write, [place.base]
        written = [inner.of(source) for source in place.before]
        for item in items:
            if isinstance(item, str):
                written.append(write(formats[-1], inner.of(formats[-1].source), item))
                continue
            atom = place.atoms[item.id]
            if isinstance(atom, Text) and item.kind is TagKind.OPEN:
                formats.append(atom.format)
            elif isinstance(atom, Text) and item.kind is TagKind.POINT:
                written.append(write(atom.format, inner.of(atom.format.source), atom.text))
            elif isinstance(atom, Point):
                written.append(inner.of(atom.source))
            elif isinstance(atom, Container) and item.kind is TagKind.OPEN:
                written.append(inner.of(atom.open))
                formats.append(main_format(atom.inside))
            else:
                formats.pop()
                written.append(inner.of(atom.close) if isinstance(atom, Container) else "")
        return "".join((*written, *(inner.of(source) for source in place.after)))


class _Filler:
    """A text with some slots filled."""

    def __init__(self, text: str, slots: Sequence[Slot]) -> None:
        self._text = text
        self._slots = slots
        self._begins = [slot.begin for slot in slots]

    def of(self, source: Source) -> str:
        return "".join(one if isinstance(one, str) else self.between(*one) for one in source)

    def between(self, begin: int, end: int) -> str:
        parts: list[str] = []
        for number in range(bisect_left(self._begins, begin), len(self._slots)):
            slot = self._slots[number]
            if slot.end > end:
                break
            parts += self._text[begin : slot.begin], slot.text
            begin = slot.end
        return "".join((*parts, self._text[begin:end]))


def labels_in(formulas: Iterable[str]) -> set[str]:
    """Return the texts in quotes in formulas and rules, which know cells by them; lists are cut at commas, too."""
    labels = set[str]()
    for formula in formulas:
        for quoted in _QUOTED.findall(unescape(formula)):
            labels.update((quoted, *quoted.split(",")))
    return labels
