"""Markup as tokens with their places: tags, text, and what is neither.

Joined, the sources of the tokens are the text, whatever it is.  The standard library's `html.parser` takes quadratic
time on comments that never end, drops the text of scripts that never end, and knows no XML; lxml gives no places.  The
rules are those of HTML's tokenizer (https://html.spec.whatwg.org/multipage/parsing.html#tokenization), except that a
tag contains no "<" outside of quotes, so that "x <y and <b>" has one tag.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from service.text.syntax import Syntax


class TokenKind(StrEnum):
    TEXT = "text"
    OPEN = "open"
    CLOSE = "close"
    EMPTY = "empty"  # <br/>
    OTHER = "other"  # comments, declarations, processing instructions, CDATA, the content of scripts


class Token(NamedTuple):
    """Code points begin <= i < end of a text."""

    kind: TokenKind
    begin: int
    end: int
    name: str = ""  # of a tag; in lower case where the format ignores case


class Attribute(NamedTuple):
    """An attribute with its value as it is written, without quotes."""

    name: str
    begin: int  # of the value, in the tag
    value: str
    quote: str  # empty: there are no quotes


# Possessive quantifiers: what has been read is never read again, so that the time is linear.
_OPEN = re.compile(
    r"""<(?P<name>[^\W\d][^\s/<>]*+)
    (?: [^<>=/]++ | /(?!>) | =\s*+ (?: "[^"]*+" | '[^']*+' | (?!/>)[^\s"'<>][^\s<>]*+ )?+ )*+
    (?P<empty>/?)""",
    re.VERBOSE,
)
_CLOSE = re.compile(r"</(?P<name>(?:[^\W\d][^\s/<>]*+)?)[^<>]*+>")
_COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)", re.DOTALL)
_XML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CDATA = re.compile(r"<!\[CDATA\[.*?\]\]>", re.DOTALL)
_SUBSET = re.compile(r"<!DOCTYPE[^<>\[]*+\[.*?\]\s*+>", re.DOTALL)  # <!DOCTYPE x [ <!ENTITY y "z"> ]>
_INSTRUCTION = re.compile(r"<\?.*?\?>", re.DOTALL)  # of XML; in HTML it ends with the first ">"
_DECLARATION = re.compile(r"<[!?][^>]*+>")
_ATTRIBUTE = re.compile(
    r"""(?P<name>[^\s"'<>/=]++)
    (?: \s*+=\s*+ (?: (?P<quote>["']) (?P<quoted>.*?) (?P=quote) | (?P<bare>[^\s"'<>][^\s<>]*+) ) )?+""",
    re.VERBOSE | re.DOTALL,
)


def lex(text: str, syntax: Syntax) -> Iterator[Token]:
    """Yield the tokens of a text in order, none of them empty, without gaps."""
    lexer = _Lexer(text, syntax)
    begin = at = 0  # the text that waits begins at `begin`
    while (at := text.find("<", at)) >= 0:
        token = lexer.markup_at(at)
        if token is None:
            at += 1
            continue
        if begin < at:
            yield Token(TokenKind.TEXT, begin, at)
        yield token
        begin = at = token.end
        if token.kind is TokenKind.OPEN and token.name in syntax.raw:
            begin = at = lexer.end_of_raw(token)
            if token.end < at:
                yield Token(TokenKind.OTHER, token.end, at)
    if begin < len(text):
        yield Token(TokenKind.TEXT, begin, len(text))


def attributes(tag: str) -> Iterator[Attribute]:
    """Yield the attributes of a start tag that have a value."""
    name = _OPEN.match(tag)
    for match in _ATTRIBUTE.finditer(tag, name.end("name") if name else 0):
        group = "quoted" if match["quote"] else "bare"
        if match[group] is not None:
            yield Attribute(match["name"].lower(), match.start(group), match[group], match["quote"] or "")


class _Lexer:
    def __init__(self, text: str, syntax: Syntax) -> None:
        self._text = text
        self._syntax = syntax
        self._last_end = text.rfind(">")
        self._last_template_end = text.rfind("%>")

    def markup_at(self, at: int) -> Token | None:
        """Return what begins with the "<" there; None: the "<" is text."""
        following = self._text[at + 1 : at + 2]
        if following == "%" and not self._syntax.is_xml and at < self._last_template_end:
            return Token(TokenKind.OTHER, at, self._text.index("%>", at) + 2)
        if following in ("!", "?"):
            return Token(TokenKind.OTHER, at, self._end_of_other(at))
        if following == "/":
            return self._close(at)
        if not self._syntax.is_xml and not following.isascii():
            return None
        return self._open(at)

    def end_of_raw(self, token: Token) -> int:
        """Return where the content of a script or the like ends: before its end tag, or with the text."""
        found = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(self._text, token.end)
        return found.start() if found else len(self._text)

    def _open(self, at: int) -> Token | None:
        match = _OPEN.match(self._text, at)
        if match is None:
            return None
        end = match.end()
        if self._text.startswith(">", end):
            return Token(TokenKind.EMPTY if match["empty"] else TokenKind.OPEN, at, end + 1, self._name(match))
        if (
            end == len(self._text) and at < self._last_end
        ):  # quotes that never end: as in a browser, all of it is the tag
            return Token(TokenKind.OTHER, at, end)
        return None

    def _close(self, at: int) -> Token | None:
        match = _CLOSE.match(self._text, at)
        if match is None:
            return None
        return Token(TokenKind.CLOSE if match["name"] else TokenKind.OTHER, at, match.end(), self._name(match))

    def _end_of_other(self, at: int) -> int:
        match = self._pattern_of_other(at).match(self._text, at)
        return match.end() if match else len(self._text)

    def _pattern_of_other(self, at: int) -> re.Pattern[str]:
        starts_with = self._text.startswith
        if starts_with("<!--", at):
            return _XML_COMMENT if self._syntax.is_xml else _COMMENT
        if starts_with("<![CDATA[", at):
            return _CDATA
        if self._syntax.is_xml and starts_with("<?", at):
            return _INSTRUCTION
        if self._syntax.is_xml and re.compile(r"<!DOCTYPE[^<>\[]*+\[").match(self._text, at):
            return _SUBSET
        return _DECLARATION

    def _name(self, match: re.Match[str]) -> str:
        return match["name"] if self._syntax.is_xml else match["name"].lower()
