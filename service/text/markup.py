"""Text with markup, taken apart: a segment for each block of inline text, and everything else as it is.

Knows how HTML, XML and the inline content of XLIFF mark text up; not how it is translated or put together again.
"""

import html
import re
from collections.abc import Generator, Iterator, Mapping, Sequence

from service.records import TextFormat
from service.text.markup_lexer import SYNTAXES, Attribute, Elements, Syntax, Token, TokenKind, attributes, lex
from service.text.segments import Part, Segment, Tag, TagKind, joined, trim

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
        self.follows_break = False  # whether nothing but white space came after the last tag, which separates words

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
            self._follows_space = self.follows_break = False

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
        self._follows_space = self.follows_break = True

    @property
    def ends_in_word(self) -> bool:
        """Whether the last thing is a letter, or a sign behind a word."""
        return bool(self._text) and not self._follows_space and (self._text[-1].isalpha() or self._text[-1] in _BEHIND)

    def segment(self, partners: Mapping[int, int]) -> Segment:
        """Return what was collected."""
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
        self._follows_space = self.follows_break = False

    def _add_reference(self, reference: str, begin: int) -> None:
        end = begin + len(reference)
        is_known = not self._syntax.is_xml or _XML_REFERENCE.fullmatch(reference)
        characters = html.unescape(reference) if is_known else reference
        if characters == reference and not reference.endswith(";"):
            self._add_characters(reference, range(begin, end))
        elif characters in (reference, "", "\ufffd"):  # an entity of a document type, or no character at all
            self.add_tag(begin, end, TagKind.POINT, -1)
        else:
            self._add_characters(characters, [begin] * len(characters))


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


# What is longer says little in its sentence, and a model may change it.
_LONGEST_SHOWN = 60
_MOST_NOTE_TOKENS = 8  # start and end tag included: a link in brackets has five
_LINE_BREAK = re.compile(r"""\s(?:ctype\s*=\s*["'](?:lb|x-br)|subType\s*=\s*["']xlf:lb)["']""")
_NOTE = re.compile(
    r"\s*+(?:\d{1,3}|[*†‡§¶]{1,3}|[\[(](?:\d{1,3}|[a-z]|[*†‡§¶]{1,3})[\])])\s*+"
)  # in a link, behind a word
_MARKUP = frozenset("<>\n")


def parse(text: str, text_format: TextFormat) -> list[Part]:
    """Take a text apart; joined, the parts are the text.

    What stands between the tags of two blocks is one segment, with the tags in it.  White space in it that HTML takes
    for one space is one space.  What is not to be translated and stands within a line is a tag of the segment, which
    shows the model what it shows a reader.  Values of attributes that people read are segments of their own; where
    their tag belongs to a segment, in `Tag.parts`.
    """
    if text_format is TextFormat.PLAIN:
        return joined(trim(Segment(text, 0, text)))
    return joined(_Parser(text, SYNTAXES[text_format]).parts())


def escape(text: str) -> str:
    """Write language as HTML and XML do."""
    return html.escape(text, quote=False)


def _in_own_quotes(text: str) -> str:
    return f'"{html.escape(text, quote=True)}"'


class _Parser:
    def __init__(self, text: str, syntax: Syntax) -> None:
        self._text = text
        self._syntax = syntax
        self._tokens = list(lex(text, syntax))
        self._elements = Elements(text, self._tokens, syntax)
        self._block = Block(text, 0, syntax)
        # Elements around the present token that say whether they are translated: where they end, and what they say.
        self._orders: list[tuple[int, bool]] = []

    def parts(self) -> Iterator[Part]:
        number = 0
        while number < len(self._tokens):
            while self._orders and self._orders[-1][0] <= number:
                yield from self._ended_block()
                self._orders.pop()
            if self._orders and not self._orders[-1][1]:
                yield from self._as_it_is(number)
                number += 1
            elif self._is_break(self._tokens[number]):
                yield from self._translated(number)
                number += 1
            elif self._elements.order_of(number) is False or self._is_note(number):
                number = yield from self._untouched(number)
            else:
                yield from self._translated(number)
                number += 1
        yield from self._ended_block()

    def _as_it_is(self, number: int) -> Iterator[Part]:
        """Yield a token within an element that is not translated."""
        if self._elements.order_of(number):
            self._orders.append((self._elements.end_of(number), True))
        yield from self._between_blocks(self._tokens[number].begin, self._tokens[number].end)

    def _untouched(self, number: int) -> Generator[Part, None, int]:
        """Take in an element that is not translated, and return the number of the token behind what was taken."""
        token, end = self._tokens[number], self._elements.end_of(number)
        if self._elements.has_language(number):
            self._orders.append((end, False))
            yield from self._between_blocks(token.begin, token.end)
            return number + 1
        if token.name in self._syntax.blocks:
            yield from self._between_blocks(token.begin, self._tokens[end - 1].end)
        else:
            self._block.add_untouched(token.begin, self._tokens[end - 1].end, self._shown(number, end))
        return end

    def _is_note(self, number: int) -> bool:
        """Whether an element is a number or a sign at the end of a word: "m<sup>2</sup>", "house<a>[1]</a>"."""
        token = self._tokens[number]
        is_element = token.kind is TokenKind.OPEN and number in self._elements.partners
        if not is_element or token.name not in self._syntax.notes | self._syntax.links:
            return False
        end = self._elements.end_of(number)
        if end - number > _MOST_NOTE_TOKENS:
            return False
        inner = self._tokens[number + 1 : end - 1]
        text = html.unescape("".join(self._text[one.begin : one.end] for one in inner if one.kind is TokenKind.TEXT))
        begin = self._tokens[end - 1].end
        if self._text[begin : begin + 1].isalnum():
            return False
        if token.name in self._syntax.notes:
            return not any(map(str.isalpha, text))
        return self._block.ends_in_word and _NOTE.fullmatch(text) is not None

    def _shown(self, number: int, end: int) -> str:
        """Return what a reader, and the model, sees of an element that comes back as it is."""
        block = Block(self._text, self._tokens[number].begin, self._syntax)
        for token in self._tokens[number + 1 : end]:
            if token.kind is TokenKind.TEXT:
                block.add_text(token.begin, token.end)
        text = block.text.strip()
        is_name = 0 < len(text) <= _LONGEST_SHOWN and not _MARKUP.intersection(text)
        is_seen = self._elements.order_of(number) is False and self._tokens[number].name not in self._syntax.unseen
        return text if is_name and is_seen else ""

    def _translated(self, number: int) -> Iterator[Part]:
        token = self._tokens[number]
        if token.kind is TokenKind.TEXT:
            self._block.add_text(token.begin, token.end)
        elif token.name in self._syntax.blocks:
            yield from self._between_blocks(token.begin, token.end, self._parts_of_tag(token))
        elif self._is_break(token):
            if self._block.follows_break:
                yield from self._ended_block()
            self._block.add_break(token.begin, token.end)
        else:
            self._block.add_tag(token.begin, token.end, self._kind(token), number, self._parts_of_tag(token))

    def _is_break(self, token: Token) -> bool:
        """Whether a tag ends a line: <br>, and the codes of XLIFF for one."""
        if token.name in self._syntax.breaks:
            return True
        is_code = bool(self._syntax.openers) and token.kind is TokenKind.EMPTY
        return is_code and bool(_LINE_BREAK.search(self._text, token.begin, token.end))

    def _kind(self, token: Token) -> TagKind:
        if token.name in self._syntax.voids:
            return TagKind.POINT
        return {TokenKind.OPEN: TagKind.OPEN, TokenKind.CLOSE: TagKind.CLOSE}.get(token.kind, TagKind.POINT)

    def _between_blocks(self, begin: int, end: int, parts: list[Part] | None = None) -> Iterator[Part]:
        yield from self._ended_block()
        yield from parts or [self._text[begin:end]]
        self._block = Block(self._text, end, self._syntax)

    def _ended_block(self) -> Iterator[Part]:
        yield from trim(self._block.segment(self._elements.partners)._replace(escape=escape))
        self._block = Block(self._text, self._block.end, self._syntax)

    def _parts_of_tag(self, token: Token) -> list[Part]:
        """Return a tag in parts if it has attributes that are language, else nothing."""
        if not self._syntax.attributes or token.kind not in (TokenKind.OPEN, TokenKind.EMPTY):
            return []
        parts: list[Part] = []
        place = token.begin
        for attribute in attributes(self._text[token.begin : token.end]):
            if attribute.name in self._syntax.attributes:
                begin = token.begin + attribute.begin
                parts += [self._text[place:begin], *self._value(attribute, begin)]
                place = begin + len(attribute.value)
        is_language = any(isinstance(part, Segment) for part in parts)
        return joined([*parts, self._text[place : token.end]]) if is_language else []

    def _value(self, attribute: Attribute, begin: int) -> list[Part]:
        block = Block(self._text, begin, self._syntax)
        block.add_text(begin, begin + len(attribute.value))
        parts = trim(block.segment({})._replace(escape=html.escape if attribute.quote else _in_own_quotes))
        if attribute.quote or joined(parts) == [part for part in parts if isinstance(part, Segment)]:
            return parts
        return [attribute.value]
