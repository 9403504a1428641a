"""Text with markup, taken apart: a segment for each block of inline text, and everything else as it is.

Knows how HTML, XML and the inline content of XLIFF mark text up; not how it is translated or put together again.
"""

import html
import re
from collections.abc import Generator, Iterator

from service.records import TextFormat
from service.text.block import Block
from service.text.document import Document, Part, Segment, TagKind
from service.text.elements import Elements
from service.text.lexer import Attribute, Token, TokenKind, attributes, lex
from service.text.pieces import joined, trim
from service.text.syntax import SYNTAXES, Syntax

# What is longer says little in its sentence, and a model may change it.
_LONGEST_SHOWN = 60
_MOST_NOTE_TOKENS = 8  # start and end tag included: a link in brackets has five
_LINE_BREAK = re.compile(r"""\s(?:ctype\s*=\s*["'](?:lb|x-br)|subType\s*=\s*["']xlf:lb)["']""")
_NOTE = re.compile(
    r"\s*+(?:\d{1,3}|[*†‡§¶]{1,3}|[\[(](?:\d{1,3}|[a-z]|[*†‡§¶]{1,3})[\])])\s*+"
)  # in a link, behind a word
_MARKUP = frozenset("<>\n")


def parse(text: str, text_format: TextFormat) -> Document:
    """Take a text apart.

    What stands between the tags of two blocks is one segment, with the tags in it.  White space in it that HTML takes
    for one space is one space.  What is not to be translated and stands within a line is a tag of the segment, which
    shows the model what it shows a reader.  Values of attributes that people read are segments of their own; where
    their tag belongs to a segment, in `Tag.parts`.
    """
    if text_format is TextFormat.PLAIN:
        return Document(tuple(joined(trim(Segment(text, 0, text)))), _unchanged)
    return Document(tuple(joined(_Parser(text, SYNTAXES[text_format]).parts())), escape)


def escape(text: str) -> str:
    """Write language as HTML and XML do."""
    return html.escape(text, quote=False)


def _unchanged(text: str) -> str:
    return text


def _in_given_quotes(text: str) -> str:
    return html.escape(text, quote=True)


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
        yield from trim(self._block.segment(self._elements.partners))
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
        parts = trim(block.segment({})._replace(escape=_in_given_quotes if attribute.quote else _in_own_quotes))
        if attribute.quote or joined(parts) == [part for part in parts if isinstance(part, Segment)]:
            return parts
        return [attribute.value]
