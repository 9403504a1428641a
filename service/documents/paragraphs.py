"""A part of an Office or OpenDocument file as paragraphs to translate, with what is in their lines as inline tags.

    <w:r>A </w:r><w:r rsid="1"><b/>bold</w:r><w:r rsid="2"><b/>er</w:r><w:r> cat</w:r>   ->   A <g id="1">bolder</g> cat

Text of one format is joined, however many runs or spans it was cut into; the format that most of a paragraph has needs
no tag.  A paragraph whose translation is its text stays byte for byte; of another one its runs are written anew, and
everything else in it keeps its bytes.  What elements mean is said by subclasses; knows no format of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import unescape
from itertools import chain
from typing import ClassVar, NamedTuple, Self

from service.documents.draft import (
    Answer,
    DoesNotFit,
    LanguageMark,
    Part,
    Passage,
    Slot,
    Source,
    Unit,
    has_language,
    passage_at,
)
from service.documents.inline import (
    CODE,
    Atom,
    Format,
    Item,
    Mark,
    Text,
    decode,
    encode,
    escaped,
    joined,
    main_format,
    marked,
    merged,
    texts_in,
    with_fields,
    without_frame,
)
from service.documents.xml import Element, Tag, attributes_at, element_of, pieces, prefix_at
from service.records import TextFormat
from service.text.segments import TagKind

_QUOTED = re.compile(r'"((?:[^"]|"")*+)(?:"|\Z)')
_INITIAL = re.compile(r"\W*\w")
MAX_PLACES = 500_000  # texts, and what says a language; 1,000 pages have a fifth of that


def names(**by_prefix: str) -> frozenset[str]:
    """Return names of elements, which are given by their prefixes with spaces between them."""
    return frozenset(f"{prefix}:{name}" for prefix, given in by_prefix.items() for name in given.split())


class _Paragraph(NamedTuple):
    begin: int
    end: int
    before: Source
    items: Sequence[Item]
    after: Source
    main: Format
    initial: Element | None  # that has the first letter


class PartReader(Part):
    """Reads one part; what is in a paragraph comes before it.

    A subclass for each format says what its elements mean and how text is written.
    """

    namespaces: ClassVar[Mapping[str, str]]
    paragraphs: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()  # are taken with what is in them
    skipped: frozenset[str] = frozenset()  # have no language, and mean nothing once the text is another one
    text_attributes: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # whose values are texts, by element; "": its content
    language_attributes: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # that say the language; "": the content
    # In paragraphs:
    containers: ClassVar[Mapping[str, str]] = {}  # hold text; the element in it that does, or ""
    characters: ClassVar[Mapping[str, str]] = {}  # elements that are characters
    ruby: ClassVar[Mapping[str, str]] = {}  # text with its reading; the element in it that is the text
    shown: frozenset[str] = frozenset()  # come back as they are; their text is a part of the sentence
    space: re.Pattern[str] | None = (
        None  # what one space is written as; None: text is in elements, and all space counts
    )

    def __init__(self, text: str) -> None:
        """Read nothing yet."""
        super().__init__(text)
        self._has_paragraphs = False
        self._initial: Element | None = None  # the text of a large letter, which the next paragraph begins with
        self._knows_code = True
        attributes = chain(self.text_attributes.items(), self.language_attributes.items())
        self._whole = {*self.paragraphs, *self.groups, *(name for name, found in attributes if "" in found)}

    def written(self, _: Format, text: str) -> Source:
        """Return text as elements."""
        return (text,)

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
        if is_main and not self._has_paragraphs:
            self.passages, self.languages, self._knows_code = [], [], False
            self._find_places()
        return self

    def _find_places(self) -> None:
        rest = pieces(self.text, self.namespaces)
        for piece in rest:
            if len(self.passages) + len(self.languages) > MAX_PLACES:
                raise ValueError(f"the file has more than {MAX_PLACES:,} texts and marks of language")
            if isinstance(piece, str) or not piece.is_start:
                continue
            if piece.name in self.skipped:
                element_of(piece, rest)
            elif piece.name in self._whole:
                self.take(element_of(piece, rest))
            else:
                self.start(piece)

    def start(self, tag: Tag) -> None:
        """Take in what the attributes of a start tag say."""
        texts, languages = self.text_attributes.get(tag.name, ()), self.language_attributes.get(tag.name, ())
        if not texts and not languages:
            return
        found = attributes_at(self.text, tag.begin, tag.end)
        language = next((one.value for name, one in found.items() if name.rpartition(":")[2] in languages), "")
        for name, attribute in found.items():
            local = name.rpartition(":")[2]
            if local in languages:
                self._mark_language(local, language, attribute.begin, attribute.end)
            elif local in texts:
                self.take_text(attribute.begin, attribute.end)

    def _mark_language(self, name: str, language: str, begin: int, end: int) -> None:
        self.languages.append(LanguageMark(name, language, begin, end, self.text[begin:end]))

    def take(self, node: Element) -> None:
        """Take in an element and what is in it, from the innermost on."""
        if node.name in self.skipped:
            return
        self.start(Tag(node.name, node.begin, node.content, is_start=True, is_end=False))
        for child in node.elements:
            self.take(child)
        if "" in self.language_attributes.get(node.name, ()):
            self._mark_language("", node.text, node.content, node.content_end)
        elif "" in self.text_attributes.get(node.name, ()):
            self.take_text(node.content, node.content_end)
        elif node.name in self.paragraphs and self.is_translated(node):
            self._take_paragraph(node)

    def take_text(self, begin: int, end: int) -> None:
        """Take in a text; one with elements or CDATA in it stays."""
        text = unescape(self.text[begin:end])
        if has_language(text) and "<" not in self.text[begin:end]:
            self.passages.append(passage_at(begin, end, self._unit([text]), _as_attribute))

    def _unit(self, items: Sequence[Item]) -> Unit:
        return Unit(encode(items), TextFormat.XLIFF, len(self.passages) + 1)

    def is_translated(self, paragraph: Element) -> bool:
        """Whether a paragraph is language at all."""
        return True

    def _take_paragraph(self, node: Element) -> None:
        content, children = node.content, node.children
        for number, child in enumerate(children):
            if isinstance(child, Element) and child.name.endswith(":pPr"):
                content, children = child.end, children[number + 1 :]
                break
        form = Format("", (), node.name.partition(":")[0], prefix_at(self.text, node.begin))
        before, atoms, after = without_frame(with_fields(joined(self._atoms(children, form))))
        if has_language("".join(one.text for one in texts_in(atoms) if not one.format.is_code)):
            main = main_format(atoms, form)
            items = marked(atoms, main, self.written)
            initial, self._initial = self._initial, None
            items = merged([initial.text, *items]) if initial else items
            paragraph = _Paragraph(content, node.content_end, before, items, after, main, initial)
            self.passages.append(Passage((self._unit(items),), partial(self._slots, paragraph)))
            self._has_paragraphs = True

    def _atoms(self, children: Iterable[Element | str], around: Format) -> Iterator[Atom]:
        for child in children:
            if isinstance(child, Element):
                yield from self.atoms_of(child, around)
            elif self.space is not None:
                yield Text(around, self.space.sub(" ", child))

    def atoms_of(self, node: Element, around: Format) -> Iterator[Atom]:
        """Yield what an element in a paragraph is, in text of this format."""
        if node.name in self.characters:
            yield Text(around, self.characters[node.name])
        elif node.name in self.ruby:
            yield Text(around, self.base_of(node))
        elif node.name in self.containers:
            yield from self._container(node, around)
        elif node.name not in self.skipped:
            shows = node.text if node.name in self.shown else ""
            yield Mark(TagKind.POINT, shows=shows, pieces=(*around.source, (node.begin, node.end), around.ends))

    def base_of(self, ruby: Element) -> str:
        """Return text without its reading, which says nothing once the text is in another language."""
        text = "".join(one.text for one in ruby.elements if one.name == self.ruby[ruby.name])
        return text if self.space is None else self.space.sub(" ", text)

    def _container(self, node: Element, around: Format) -> Iterator[Atom]:
        """Yield an element around runs; one that holds its text otherwise comes back as it is."""
        inner = self.containers[node.name]
        found = next((one for one in node.elements if one.name == inner), None) if inner else node
        is_kept = found is None or self.is_chosen(node)
        inside = [] if found is None or is_kept else list(self._atoms(found.children, around))
        if found is None or not any(one.text for one in texts_in(inside)):
            whole = (*around.source, (node.begin, node.end), around.ends)
            yield Mark(TagKind.POINT, shows=node.text if is_kept else "", pieces=whole)
        else:
            yield Mark(TagKind.OPEN, pieces=((node.begin, found.content),))
            yield from inside
            yield Mark(TagKind.CLOSE, pieces=((found.content_end, node.end),))

    def is_chosen(self, _: Element) -> bool:
        """Whether the text of a container comes from elsewhere, such as from a list."""
        return False

    def _slots(self, paragraph: _Paragraph, answers: Sequence[Answer]) -> Iterator[Slot]:
        """Yield the translation of a paragraph; raises DoesNotFit."""
        formats, written = [paragraph.main], list(paragraph.before)
        items = decode(answers[0].text, paragraph.items)
        if initial := paragraph.initial:
            letter = _INITIAL.match(items[0]) if items and isinstance(items[0], str) else None
            if letter is None:
                raise DoesNotFit("the translation does not begin with a letter")
            yield Slot(initial.content, initial.content_end, escaped(letter[0]))
            items[0] = letter.string[letter.end() :]
        for item in items:
            if isinstance(item, str):
                written += self.written(formats[-1], item)
                continue
            if item.kind is TagKind.CLOSE:
                formats.pop()
            written += item.pieces
            if item.format is not None:
                formats.append(item.format)
        yield Slot(paragraph.begin, paragraph.end, (*written, *paragraph.after))


def _as_attribute(translation: str) -> str:
    text = escaped("".join(item for item in decode(translation, ()) if isinstance(item, str)))
    return text.replace('"', "&quot;").replace("\n", "&#10;")


def labels_in(formulas: Iterable[str]) -> set[str]:
    """Return the texts in quotes in formulas and rules, which know cells by them; lists are cut at commas, too."""
    labels = set[str]()
    for formula in formulas:
        for quoted in _QUOTED.findall(unescape(formula)):
            labels.update((quoted, *quoted.split(",")))
    return labels
