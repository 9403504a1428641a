"""Inline text of Markdown: a run of words with its markup, and the same markup around the words of a translation.

markdown-it-py says what is markup and not where it stands: each of its rules is wrapped to note that.
"""

import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from itertools import count
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from service.documents.draft import DoesNotFit, has_language
from service.documents.inline import Item, Mark, decode, merged, with_html_pairs
from service.text.markup_lexer import HTML, is_untouched
from service.text.segments import TagKind

References: TypeAlias = dict[str, Any]  # what the parser keeps of a file: link reference definitions, footnotes
InlineRule: TypeAlias = Callable[[StateInline, bool], bool]

# A backslash before everything that may be markup: CommonMark, section 2.4.
_ESCAPED = str.maketrans({character: "\\" + character for character in string.punctuation})
_REPEATED_LABEL = re.compile(r"(\[([^\[\]]*)\])\[\2\]")
IS_LABEL = ("]", "][]")  # ends of a link whose text is also the name of its reference
_MAX_SHOWN = 400  # characters of code that the server sees, and protects in all of its length
_PLACE, _LABEL = "place", "label"  # in a token's `meta`
_UNTOUCHED = "untouched"  # an element of HTML that stays as it is
_ELEMENT = re.compile(
    r"(?P<tag><(?P<name>[A-Za-z][\w-]*)\b[^<>]*(?<!/)>)(?P<inside>(?:(?!</?(?P=name)\b).){0,2000}+)</(?P=name)\s*>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<[^<>]*>")
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)


@dataclass(slots=True)
class Inline:
    """A run of inline text."""

    source: str
    items: list[Item] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)  # how the source escapes a character: "&": "&amp;"
    sometimes: set[str] = field(default_factory=set)  # what the source escapes with a backslash, but not each time
    alts: dict[int, "Inline"] = field(default_factory=dict)  # by mark: the text of an image

    @property
    def has_language(self) -> bool:
        """Whether there is a letter outside the markup."""
        return any(isinstance(item, str) and has_language(item) for item in self.items)


def parser() -> MarkdownIt:
    """Return a parser for the blocks of CommonMark with GitHub's tables and strikethrough, footnotes and definitions.

    `read_inline` reads what is in the blocks.
    """
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(md, inline=False, move_to_end=False)
    deflist_plugin(md)
    md.core.ruler.disable(["inline", "text_join"])
    md.inline.ruler2.disable("fragments_join")  # it would join delimiters, with their places, to the text
    md.inline.ruler.before("autolink", _UNTOUCHED, _untouched)
    for rule in md.inline.ruler.__rules__:
        md.inline.ruler.at(rule.name, _noting_places(rule.name, rule.fn))
    return md


def _untouched(state: StateInline, silent: bool) -> bool:
    """Take an element of HTML that stays as it is with what is in it: code, a footnote's sign."""
    match = _ELEMENT.match(state.src, state.pos) if state.src[state.pos] == "<" else None
    if match is None:
        return False
    name, inside = match["name"].lower(), _TAG.sub("", match["inside"])
    if name in HTML.notes:
        stays = not any(map(str.isalpha, inside)) and not state.src[match.end() : match.end() + 1].isalnum()
    else:
        stays = is_untouched(match["tag"], name, HTML)
    if stays:
        if not silent:
            shows = inside.strip() if name not in HTML.unseen and len(inside) <= _MAX_SHOWN else ""
            state.push(_UNTOUCHED, "", 0).content = unescape(shows)
        state.pos = match.end()
    return stays


def _noting_places(name: str, rule: InlineRule) -> InlineRule:
    """Return the rule, which then notes in the `meta` of its tokens where their source begins and ends."""

    def noting(state: StateInline, silent: bool) -> bool:
        begin, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            _note_places(name, state, state.tokens[known:], begin)
        return True

    return noting


def _note_places(name: str, state: StateInline, tokens: list[Token], begin: int) -> None:
    """Note the places of what a rule has found at `begin`; plain text may come before, whose place nobody needs."""
    end = state.pos
    if name == "autolink":  # one point for a link and the address in it
        del state.tokens[-2:], state.tokens_meta[-2:]
        state.tokens[-1].type, state.tokens[-1].nesting = "autolink", 0
    if name == "link":
        label_end = state.md.helpers.parseLinkLabel(state, begin, disableNested=True)
        next(token for token in tokens if token.type == "link_open").meta[_PLACE] = begin, begin + 1
        tokens[-1].meta |= {_PLACE: (label_end, end), _LABEL: (begin + 1, label_end)}
    elif name in {"emphasis", "strikethrough"}:  # a token for each delimiter
        for token in reversed(tokens):
            if end > begin:
                token.meta[_PLACE] = end - len(token.content), end
                end -= len(token.content)
    elif name == "newline":
        begin = len(state.src[:begin].rstrip(" "))  # the spaces before make it a hard break
    for token in tokens:
        token.meta.setdefault(_PLACE, (begin, end))


def read_inline(md: MarkdownIt, source: str, references: References) -> Inline:
    """Take a run apart.

    Args:
        source: lines without what belongs to the blocks around them (indentation, `>`), with line feeds between them.
    """
    inline = Inline(source)
    ids = count(1)
    open_ids: list[int] = []
    num_escaped = Counter[str]()  # with a backslash
    for token in md.inline.parse(source, md, references, []):
        if token.type == "softbreak":
            inline.items.append(" ")
        elif token.type == "text":
            inline.items.append(token.content)
        elif token.type == "text_special":
            inline.items.append(token.content)
            if len(token.content) == 1:  # else a backslash that escapes nothing, or a reference to two characters
                inline.spellings.setdefault(token.content, token.markup)
                num_escaped[token.content] += token.markup[0] == "\\"
        elif token.nesting < 0:
            inline.items.append(Mark(TagKind.CLOSE, _source_of(token, source), open_ids.pop()))
        else:
            kind, written = TagKind.OPEN if token.nesting else TagKind.POINT, _source_of(token, source)
            is_shown = token.type == _UNTOUCHED or (token.type == "code_inline" and len(written) <= _MAX_SHOWN)
            is_break = token.type == "hardbreak" or bool(_BREAK.fullmatch(written))
            mark = Mark(kind, written, next(ids), token.content if is_shown else "", is_break)
            inline.items.append(mark)
            if token.nesting:
                open_ids.append(mark.id)
            elif token.type == "image":
                inline.alts[mark.id] = read_inline(md, token.content, references)
    inline.items = merged(with_html_pairs(inline.items))
    texts = "".join(item for item in inline.items if isinstance(item, str))
    inline.sometimes = {
        one for one, written in inline.spellings.items() if written[0] == "\\" and texts.count(one) > num_escaped[one]
    }
    return inline


def _source_of(token: Token, source: str) -> str:
    begin, end = token.meta[_PLACE]
    if token.type == "strong_open":  # two delimiters, of which the parser turns the inner one into the tag
        begin -= 1
    elif token.type == "strong_close":
        end += 1
    elif token.type == "link_close" and source[begin:end] in IS_LABEL:
        return f"][{source[slice(*token.meta[_LABEL])]}]"
    return source[begin:end]


def write_inline(md: MarkdownIt, items: list[Item], inline: Inline, references: References) -> tuple[str, list[Item]]:
    """Return the source of a run on one line, but for its hard breaks, and the items as they are written.

    Args:
        items: a translation with the marks of `inline`.

    Raises:
        DoesNotFit: as it would have to be written, it is not read so.
    """
    always = {one: written for one, written in inline.spellings.items() if one not in inline.sometimes}
    for wanted in (items, [_with_asterisks(item) for item in items]):
        for spell in (str.maketrans(always), str.maketrans(inline.spellings), _ESCAPED):
            source = "".join(item.translate(spell) if isinstance(item, str) else item.source for item in wanted)
            source = _REPEATED_LABEL.sub(r"\1", source.strip(" "))
            if reads_as(md, source, wanted, references):
                return source, wanted
    raise DoesNotFit("the translation cannot be written with the markup of its source")


def reads_as(md: MarkdownIt, source: str, items: list[Item], references: References) -> bool:
    """Whether a reader of the source sees this text and markup; spaces at its ends do not count."""
    return _seen(read_inline(md, source, references).items) == _seen(items)


def _seen(items: list[Item]) -> list[str | tuple[TagKind, str]]:
    """Return text and markup without the numbers of the marks."""
    seen = [item if isinstance(item, str) else (item.kind, "".join(item.source.split())) for item in merged(items)]
    for end, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if seen and isinstance(text := seen[end], str):
            seen[end] = strip(text, " ")
    return [one for one in seen if one]


def translated_items(text: str, inline: Inline) -> list[Item]:
    """Return a translation in XLIFF with the marks of its source; raises DoesNotFit.

    There are no spaces inside pairs, since `** a**` is not bold, nor at the ends of lines.
    """
    text = re.sub(r'((?:<g id="\d+">)+)( +)', r"\2\1", re.sub(r"( +)((?:</g>)+)", r"\2\1", text))
    items = decode(re.sub(r" {2,}", " ", text), inline.items)
    for place, item in enumerate(items):
        if isinstance(item, Mark) and item.source.endswith("\n"):
            before, after = items[:place][-1:], items[place + 1 :][:1]
            items[place - 1 : place] = [one.rstrip(" ") if isinstance(one, str) else one for one in before]
            items[place + 1 : place + 2] = [one.lstrip(" ") if isinstance(one, str) else one for one in after]
    return merged(items)


def _with_asterisks(item: Item) -> Item:
    """Return `*` for `_`, which is emphasis inside words, too."""
    if isinstance(item, Mark) and set(item.source) == {"_"}:
        return item._replace(source="*" * len(item.source))
    return item
