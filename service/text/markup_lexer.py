"""Markup as tokens with their places: tags, text, and what is neither; and which tags belong together.

Joined, the sources of the tokens are the text, whatever it is.  The standard library's `html.parser` takes quadratic
time on comments that never end, drops the text of scripts that never end, and knows no XML; lxml gives no places.  The
rules are those of HTML's tokenizer (https://html.spec.whatwg.org/multipage/parsing.html#tokenization), except that a
tag contains no "<" outside of quotes, so that "x <y and <b>" has one tag.  `SYNTAXES` has what the formats differ in.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from service.records import TextFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Elements and attributes by what they mean for a translation; names in HTML are in lower case."""

    is_xml: bool = True
    blocks: frozenset[str] = frozenset()  # end a segment
    voids: frozenset[str] = frozenset()  # have no end tag
    raw: frozenset[str] = frozenset()  # contain no markup
    untouched: frozenset[str] = frozenset()  # come back as they are, with their content
    unseen: frozenset[str] = frozenset()  # those of them, and of `notes`, whose content is no text
    notes: frozenset[str] = frozenset()  # belong to the word before them where they hold no letter
    links: frozenset[str] = frozenset()  # as `notes`, where they hold only a number or a sign, and touch the word
    breaks: frozenset[str] = frozenset()  # separate words as white space does; two of them end a segment
    attributes: frozenset[str] = frozenset()  # their values are language
    openers: frozenset[str] = frozenset()  # untouched elements that open something ...
    closers: frozenset[str] = frozenset()  # ... and close it


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


HTML = Syntax(
    is_xml=False,
    blocks=_names(
        """
        address article aside base blockquote body button caption center col colgroup dd details dialog dir div dl dt
        fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend
        li link main menu meta nav noframes noscript ol optgroup option p pre search section select summary table tbody
        td template textarea tfoot th thead title tr ul
        """
    ),
    voids=_names("area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"),
    raw=_names("iframe noembed noframes script style textarea xmp"),
    untouched=_names("code iframe kbd math noembed noframes pre samp script style svg textarea tt var xmp"),
    unseen=_names("iframe math noembed noframes script style sub sup svg"),
    notes=_names("sub sup"),
    links=_names("a span"),
    breaks=_names("br"),
    attributes=_names("alt aria-label placeholder title"),
)
XML = Syntax()
# XLIFF 1.2: bpt and ept hold the codes of a pair, bx and ex stand for them, it and ph hold what has no partner.
# XLIFF 2: sc and ec are the ends of a pair, sm and em those of an annotation.
XLIFF = Syntax(
    untouched=_names("bpt ept it ph"),
    unseen=_names("bpt ept it"),
    openers=_names("bpt bx sc sm"),
    closers=_names("ept ex ec em"),
)
SYNTAXES = {TextFormat.HTML: HTML, TextFormat.XML: XML, TextFormat.XLIFF: XLIFF}


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
            other = self._pattern_of_other(at).match(self._text, at)
            return Token(TokenKind.OTHER, at, other.end() if other else len(self._text))
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


_SAYS_SOMETHING = re.compile("translate|mtype", re.IGNORECASE)


class Elements:
    """The elements of a text; numbers are those of its tokens.

    An end tag ends the nearest open element of its name and those that are open within it; where there is none, the end
    tag has no partner.
    """

    def __init__(self, text: str, tokens: Sequence[Token], syntax: Syntax) -> None:
        self.partners, self._ends = _matched(tokens, syntax)  # partners: of start tags and end tags
        self._orders = {
            index: order
            for index, token in enumerate(tokens)
            if token.kind in (TokenKind.OPEN, TokenKind.EMPTY)
            and (order := _order(text[token.begin : token.end], token.name, syntax)) is not None
        }
        says_yes = (self._orders.get(index, False) for index in range(len(tokens)))
        self._num_yes = list(accumulate(says_yes, initial=0))  # before each token

    def end_of(self, number: int) -> int:
        """Return the number of the token behind the element that begins with a start tag."""
        return self._ends.get(number, number + 1)

    def order_of(self, number: int) -> bool | None:
        """Return whether an element is to be translated; None: it does not say."""
        return self._orders.get(number)

    def has_language(self, number: int) -> bool:
        """Whether something within an element says that it is to be translated."""
        return self._num_yes[self.end_of(number)] > self._num_yes[number + 1]


def is_untouched(tag: str, name: str, syntax: Syntax) -> bool:
    """Whether an element with this start tag is not to be translated."""
    return _order(tag, name, syntax) is False


def _order(source: str, name: str, syntax: Syntax) -> bool | None:
    for attribute in attributes(source) if _SAYS_SOMETHING.search(source) else ():
        if attribute.name == "translate" and attribute.value.lower() in ("yes", "no"):
            return attribute.value.lower() == "yes"
        if attribute.name == "class" and not syntax.is_xml and "notranslate" in attribute.value.split():
            return False
        if attribute.name == "mtype" and attribute.value == "protected":
            return False
    return False if name in syntax.untouched else None


def _matched(tokens: Sequence[Token], syntax: Syntax) -> tuple[dict[int, int], dict[int, int]]:
    """Return the partners of tags, and the ends of elements by their start tags."""
    partners: dict[int, int] = {}
    ends: dict[int, int] = {}
    open_tags: list[int] = []
    num_open: Counter[str] = Counter()
    for number, token in enumerate(tokens):
        if token.kind is TokenKind.OPEN and token.name not in syntax.voids:
            open_tags.append(number)
            num_open[token.name] += 1
        elif token.kind is TokenKind.CLOSE and num_open[token.name]:
            while tokens[start := open_tags.pop()].name != token.name:
                ends[start] = number
                num_open[tokens[start].name] -= 1
            num_open[token.name] -= 1
            partners[start], partners[number] = number, start
            ends[start] = number + 1
    return partners, ends | dict.fromkeys(open_tags, len(tokens))
