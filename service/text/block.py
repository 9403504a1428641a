"""A block of inline text that is being collected: its language, and the tags in it."""

import html
import re
from collections.abc import Mapping, Sequence
from html.entities import html5

from service.text.document import Part, Segment, Tag, TagKind
from service.text.syntax import Syntax

_SPACE = " \t\n\r\f"  # what HTML takes for white space: a no-break space is a character
_PIECES = re.compile(
    rf"(?P<space>[{_SPACE}]+)|(?P<reference>&(?:\#[0-9]+|\#[xX][0-9a-fA-F]+|[^\W\d_][^\W_]{{0,31}});?)|[^&{_SPACE}]+|&"
)
_MEANS_SOMETHING = re.compile(r"[\n\r\t]|   ")  # white space that ends a line, or parts columns
_XML_REFERENCE = re.compile(r"&(?:#[0-9]+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos);")
_BEHIND = ".,;:!?)\"'”“’"
_CODE = re.compile(r"<([\w.-]+)")
_CODE_KEY = re.compile(r"""\s(rid|startRef|id)\s*=\s*["']([^"']*)["']""")


class Block:
    """Collects the text from one place on."""

    def __init__(self, text: str, begin: int, syntax: Syntax) -> None:
        self.end = begin  # of what was collected
        self._whole = text
        self._begin = begin
        self._syntax = syntax
        self._text: list[str] = []
        self._offsets: list[int] = []
        self._tags: list[Tag] = []
        self._numbers: dict[int, int] = {}  # of a start or end tag's token -> its index in `_tags`
        self._follows_space = True  # more white space makes no difference
        self._follows_break = False

    def add_text(self, begin: int, end: int) -> None:
        """Add text with references to characters."""
        for match in _PIECES.finditer(self._whole, begin, end):
            if match["space"]:
                self._add_white_space(*match.span())
            elif match["reference"]:
                self._add_reference(match[0], match.start())
            else:
                self._add_characters(match[0], range(*match.span()))
        self.end = end

    @property
    def text(self) -> str:
        """The language in what was collected."""
        return "".join(self._text)

    def add_tag(self, begin: int, end: int, kind: TagKind, number: int, parts: Sequence[Part] = ()) -> None:
        """Add a tag; `number` is that of its token."""
        if kind is not TagKind.POINT:
            self._numbers[number] = len(self._tags)
        self._tags.append(Tag(len(self._text), self._whole[begin:end], kind, None, begin, tuple(parts)))
        self.end = end
        if kind is TagKind.POINT:
            self._follows_space = self._follows_break = False

    def add_untouched(self, begin: int, end: int, shown: str) -> None:
        """Add an element that comes back as it is, with what a reader sees of it."""
        self.add_tag(begin, end, TagKind.POINT, -1)
        if shown:
            self._tags[-1] = self._tags[-1]._replace(width=len(shown))
            self._add_characters(shown, [begin] * len(shown))

    def add_break(self, begin: int, end: int) -> None:
        """Add what ends a line; the white space around it belongs to it."""
        if self._text and self._text[-1] == " " and self._whole[self._offsets[-1] : begin].isspace():
            begin = self._offsets[-1]
        self._add_space(begin)
        self.add_tag(begin, end, TagKind.POINT, -1)
        self._tags[-1] = self._tags[-1]._replace(is_break=True)
        self._follows_space = self._follows_break = True

    @property
    def follows_break(self) -> bool:
        """Whether nothing but white space came after the last tag, which separates words."""
        return self._follows_break

    @property
    def ends_in_word(self) -> bool:
        """Whether the last thing is a letter, or a sign behind a word."""
        return bool(self._text) and not self._follows_space and (self._text[-1].isalpha() or self._text[-1] in _BEHIND)

    def segment(self, partners: Mapping[int, int]) -> Segment:
        """Return what was collected.

        Args:
            partners: Numbers of the tokens of tags by those of their partners.
        """
        tags = list(self._tags)
        for number, index in self._numbers.items():
            tags[index] = tags[index]._replace(partner=self._numbers.get(partners.get(number, -1)))
        return Segment(
            source=self._whole[self._begin : self.end],
            begin=self._begin,
            text=self.text,
            tags=_paired_codes(tags, self._syntax) if self._syntax.openers else tuple(tags),
            offsets=tuple(self._offsets),
        )

    def _add_white_space(self, begin: int, end: int) -> None:
        if self._tags and self._tags[-1].is_break and self._tags[-1].end == begin:
            self._tags[-1] = self._tags[-1]._replace(source=self._whole[self._tags[-1].begin : end])
        elif self._syntax.is_xml and _MEANS_SOMETHING.search(self._whole, begin, end):
            self.add_break(begin, end)
        else:
            self._add_space(begin)

    def _add_space(self, place: int) -> None:
        if not self._follows_space:
            self._text.append(" ")
            self._offsets.append(place)
            self._follows_space = True

    def _add_characters(self, characters: str, places: Sequence[int]) -> None:
        self._text += characters
        self._offsets += places
        self._follows_space = self._follows_break = False

    def _add_reference(self, reference: str, begin: int) -> None:
        end = begin + len(reference)
        is_known = not self._syntax.is_xml or _XML_REFERENCE.fullmatch(reference)
        characters = html.unescape(reference) if is_known else reference
        if characters == reference and not reference.endswith(";"):
            self._add_characters(reference, range(begin, end))
        elif characters in (reference, "", "\ufffd"):  # an entity of a document type, or no character at all
            self.add_tag(begin, end, TagKind.POINT, -1)
        else:
            length = _known_length(reference)
            characters = html.unescape(reference[:length])
            self._add_characters(characters, [begin] * len(characters))
            self._add_characters(reference[length:], range(begin + length, end))


def _known_length(reference: str) -> int:
    """Return how much of a reference names a character: four code points of "&ampere"."""
    return next((end for end in range(len(reference), 2, -1) if reference[1:end] in html5), len(reference))


def _paired_codes(tags: Sequence[Tag], syntax: Syntax) -> tuple[Tag, ...]:
    """Make pairs of XLIFF's codes for starts and ends where they are nested among the other tags."""
    paired = list(tags)
    waiting: list[int] = []  # start tags and codes for starts
    for index, tag in enumerate(tags):
        name = match[1] if (match := _CODE.match(tag.source)) else ""
        if tag.kind is TagKind.OPEN or name in syntax.openers:
            waiting.append(index)
        elif tag.partner is not None:
            while waiting.pop() != tag.partner:
                pass
        elif name in syntax.closers and waiting and _code_key(tags[waiting[-1]]) == _code_key(tag):
            start = waiting.pop()
            paired[start] = paired[start]._replace(kind=TagKind.OPEN, partner=index)
            paired[index] = tag._replace(kind=TagKind.CLOSE, partner=start)
    return tuple(paired)


def _code_key(tag: Tag) -> str:
    """Return what a code has in common with its partner."""
    keys = dict(_CODE_KEY.findall(tag.source))
    return keys.get("startRef") or keys.get("rid") or keys.get("id") or tag.source
