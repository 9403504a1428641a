"""A part of an Office or OpenDocument file as paragraphs to translate, with what is in their lines as inline tags.

    <w:r>A </w:r><w:r rsid="1"><b/>bold</w:r><w:r rsid="2"><b/>er</w:r><w:r> cat</w:r>   ->   A <g id="1">bolder</g> cat

Text of one format is joined, however many runs or spans it was cut into; the format that most of a paragraph has needs
no tag.  A paragraph whose translation is its text stays byte for byte; of another one its runs are written anew, and
everything else in it keeps its bytes.  What elements mean is said by a `Vocabulary`; knows no format of its own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from typing import NamedTuple, Self

from service.documents.draft import (
    Answer,
    DoesNotFit,
    Draft,
    Passage,
    Slot,
    Source,
    Unit,
    draft_of_passages,
    has_language,
)
from service.documents.inline import (
    ALONE,
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
from service.documents.package import Said
from service.documents.xml import Element, Tag, attributes_at, element_of, pieces, prefix_at
from service.records import TextFormat
from service.text.document import TagKind

_EMPTY = re.compile(r"<[^\s<>/]+\s*/>|<[^\s<>]+\s*>\s*</[^<>]+>")
_QUOTED = re.compile(r'"((?:[^"]|"")*+)(?:"|\Z)')
_INITIAL = re.compile(r"\W*\w")
MAX_PLACES = 500_000  # texts, and what says a language; 1,000 pages have a fifth of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Elements by what they mean for a translation, and how text is written."""

    namespaces: Mapping[str, str]
    paragraphs: frozenset[str]
    write: Callable[[Format, str], Source]  # format, text -> elements
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
    spacing: re.Pattern[str] | None = None  # what makes no other format
    space: re.Pattern[str] | None = None  # what one space is written as; None: all white space counts


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

    def slots(self, write: Callable[[Format, str], Source], answers: Sequence[Answer]) -> Iterator[Slot]:
        """Yield its translation; raises DoesNotFit."""
        formats, written = [self.main], list(self.before)
        items = decode(answers[0].text, self.items)
        if self.initial:
            letter = _INITIAL.match(items[0]) if items and isinstance(items[0], str) else None
            if letter is None:
                raise DoesNotFit("the translation does not begin with a letter")
            yield Slot(self.initial.content, self.initial.content_end, escaped(letter[0]))
            items[0] = letter.string[letter.end() :]
        for item in items:
            if isinstance(item, str):
                written += write(formats[-1], item)
                continue
            if item.kind is TagKind.CLOSE:
                formats.pop()
            written += item.pieces
            if item.format is not None:
                formats.append(item.format)
        yield Slot(self.begin, self.end, (*written, *self.after))


class PartReader:
    """Reads one part; what is in a paragraph comes before it."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        """Read nothing yet."""
        self.text = text
        self.passages: list[Passage] = []
        self.languages: list[Said] = []
        self._has_paragraphs = False
        self._initial: Element | None = None  # the text of a large letter, which the next paragraph begins with
        self._words = vocabulary
        self._keys: dict[str, tuple[str, bool, bool]] = {}  # of properties -> key, whether they are kept, are for code
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
        if is_main and not self._has_paragraphs:
            self.passages, self.languages, self._keys, self._knows_code = [], [], {}, False
            self._find_places()
        return self

    def _find_places(self) -> None:
        words, rest = self._words, pieces(self.text, self._words.namespaces)
        for piece in rest:
            if len(self.passages) + len(self.languages) > MAX_PLACES:
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
        self.languages.append(Said(name, language, begin, end, self.text[begin:end]))

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
            self._add([text], partial(_slots_of_text, begin, end))

    def _add(self, items: Sequence[Item], write: Callable[[Sequence[Answer]], Iterable[Slot]]) -> None:
        self.passages.append(Passage((Unit(encode(items), TextFormat.XLIFF, len(self.passages) + 1),), write))

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
        form = Format("", (), node.name.partition(":")[0], prefix)
        before, atoms, after = without_frame(with_fields(joined(self._atoms(children, form))))
        if has_language("".join(one.text for one in texts_in(atoms) if not one.format.is_code)):
            main = main_format(atoms, form)
            items = marked(atoms, main, self._words.write)
            initial, self._initial = self._initial, None
            items = merged([initial.text, *items]) if initial else items
            paragraph = _Paragraph(content, node.content_end, before, items, after, main, initial)
            self._add(items, partial(paragraph.slots, self._words.write))
            self._has_paragraphs = True

    def _atoms(self, children: Sequence["Element | str"], around: Format) -> Iterator[Atom]:
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
                yield from self._container(child, words.containers[child.name], around)
            elif child.name not in words.dropped:
                shows = child.text if child.name in words.shown else ""
                yield Mark(
                    TagKind.POINT, "", shows=shows, pieces=(*around.source, (child.begin, child.end), around.ends)
                )

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
                key, is_kept, is_code = self._key(self.text[child.begin : child.end])
                own: Source = ((child.begin, child.end),) if is_kept else ()
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
                is_break, field_part = self.is_break(child), self.field_part(child)
                yield Mark(TagKind.POINT, "", shows=shows, is_break=is_break, pieces=source, field_part=field_part)

    def is_break(self, _: Element) -> bool:
        """Whether an element in a run ends a line and comes back as it is."""
        return False

    def field_part(self, _: Element) -> str:
        """Return which part of a field an element in a run is."""
        return ""

    def _key(self, properties: str) -> tuple[str, bool, bool]:
        found = self._keys.get(properties)
        if found is None:
            written = self._words.no_format.sub("", properties) if self._words.no_format else properties
            key = self._words.spacing.sub("", written) if self._words.spacing else written
            key = "" if _EMPTY.fullmatch(key) else key
            found = self._keys[properties] = key, not _EMPTY.fullmatch(written), self.is_code(key)
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

    def _container(self, node: Element, inner: str, around: Format) -> Iterator[Atom]:
        """Yield an element around runs; one that holds its text otherwise comes back as it is."""
        found = next((one for one in node.elements if one.name == inner), None) if inner else node
        is_kept = found is None or self.is_chosen(node)
        inside = [] if found is None or is_kept else list(self._atoms(found.children, around))
        if found is None or not any(one.text for one in texts_in(inside)):
            whole = (*around.source, (node.begin, node.end), around.ends)
            yield Mark(TagKind.POINT, "", shows=node.text if is_kept else "", pieces=whole)
        else:
            yield Mark(TagKind.OPEN, "", pieces=((node.begin, found.content),))
            yield from inside
            yield Mark(TagKind.CLOSE, "", pieces=((found.content_end, node.end),))

    def is_chosen(self, _: Element) -> bool:
        """Whether the text of a container comes from elsewhere, such as from a list."""
        return False

    def draft(self) -> Draft:
        """Return the draft of the part."""
        return draft_of_passages(self.text, self.passages, always=[one.slot for one in self.languages])


def _slots_of_text(begin: int, end: int, answers: Sequence[Answer]) -> tuple[Slot]:
    text = escaped("".join(item for item in decode(answers[0].text, ()) if isinstance(item, str)))
    return (Slot(begin, end, text.replace('"', "&quot;").replace("\n", "&#10;")),)


def labels_in(formulas: Iterable[str]) -> set[str]:
    """Return the texts in quotes in formulas and rules, which know cells by them; lists are cut at commas, too."""
    labels = set[str]()
    for formula in formulas:
        for quoted in _QUOTED.findall(unescape(formula)):
            labels.update((quoted, *quoted.split(",")))
    return labels
