"""Inline text of Markdown: a run of words with its markup, and the same markup around the words of a translation.

markdown-it-py says what is markup and not where it stands: each of its rules is wrapped to note that.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from service.documents.draft import DoesNotFit, has_language
from service.documents.inline_tags import Item, Mark, merged, with_html_pairs
from service.text.document import TagKind
from service.text.lexer import HTML, is_untouched

References: TypeAlias = dict[str, Any]  # what the parser keeps of a file: link reference definitions, footnotes
InlineRule: TypeAlias = Callable[[StateInline, bool], bool]

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")  # what a backslash may stand before: CommonMark, section 2.4
IS_LABEL = ("]", "][]")  # ends of a link whose text is also the name of its reference
_MAX_SHOWN = 400  # characters of code that the server sees, and protects in all of its length
_PLACE, _LABEL = "place", "label"  # in a token's `meta`
_UNTOUCHED = "untouched"  # a token in the place of an element of HTML that stays as it is
_MOST_TOKENS = 40  # of such an element
_TAG_NAME = re.compile(r"<([A-Za-z][A-Za-z0-9-]*)")
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)


@dataclass(slots=True)
class Inline:
    """A run of inline text."""

    source: str
    items: list[Item] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)  # how the source escapes a character: "&": "&amp;"
    sometimes: set[str] = field(default_factory=set)  # what the source escapes with a backslash, but not each time
    labels: dict[int, str] = field(default_factory=dict)  # by mark: the text that is also the name of a reference
    alts: dict[int, "Inline"] = field(default_factory=dict)  # by mark: the text of an image

    @property
    def has_language(self) -> bool:
        """Whether there is a letter outside the markup."""
        return any(isinstance(item, str) and has_language(item) for item in self.items)

    def spelled(self, text: str) -> str:
        """Return the text with the characters escaped that the source escapes each time."""
        return "".join(self.spellings.get(c, c) if c not in self.sometimes else c for c in text)

    def spelled_often(self, text: str) -> str:
        """Return the text with the characters escaped that the source escapes once or more."""
        return "".join(self.spellings.get(character, character) for character in text)


def parser() -> MarkdownIt:
    """Return a parser for the blocks of CommonMark with GitHub's tables and strikethrough, footnotes and definitions.

    `read_inline` reads what is in the blocks.
    """
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(md, inline=False, move_to_end=False)
    deflist_plugin(md)
    md.core.ruler.disable(["inline", "text_join"])
    md.inline.ruler2.disable("fragments_join")  # it would join delimiters, with their places, to the text
    for rule in md.inline.ruler.__rules__:
        md.inline.ruler.at(rule.name, _noting_places(rule.name, rule.fn))
    return md


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
    for token in _flat(md.inline.parse(source, md, references, []), source):
        if token.type == "softbreak":
            inline.items.append(" ")
        elif token.type == "text":
            inline.items.append(token.content)
        elif token.type == "text_special":
            inline.items.append(token.content)
            inline.spellings.setdefault(token.content, token.markup)
            num_escaped[token.content] += token.markup[0] == "\\"
        elif token.nesting < 0:
            inline.items.append(_end_of_pair(inline, token, source, open_ids.pop()))
        else:
            kind, written = TagKind.OPEN if token.nesting else TagKind.POINT, _source_of(token, source)
            is_shown = token.type == _UNTOUCHED or (token.type == "code_inline" and len(written) <= _MAX_SHOWN)
            is_break = token.type == "hardbreak" or _BREAK.fullmatch(written) is not None
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


def _flat(tokens: list[Token], source: str) -> Iterator[Token]:
    """Yield the tokens with one for each `<https://example.com>` and each element of HTML that stays whole."""
    place = 0
    while place < len(tokens):
        token, end = tokens[place], place
        if token.markup == "autolink":
            end = next(after for after in range(place + 1, len(tokens)) if tokens[after].markup == "autolink")
            token = Token("autolink", "", 0, meta=token.meta)
        elif token.type == "html_inline" and (end := _end_of_untouched(tokens, place, source)) > place:
            name = _name(token)
            begins, ends = tokens[place].meta[_PLACE][0], tokens[end].meta[_PLACE][1]
            shown = "".join(one.content for one in tokens[place : end + 1] if one.type in {"text", "text_special"})
            is_seen = name not in HTML.unseen and len(shown) <= _MAX_SHOWN
            token = Token(_UNTOUCHED, "", 0, content=shown.strip() if is_seen else "", meta={_PLACE: (begins, ends)})
        yield token
        place = end + 1


def _end_of_untouched(tokens: list[Token], begin: int, source: str) -> int:
    """Return the place of the end tag of an element of HTML that stays as it is; of its start tag if it does not."""
    name, depth = _name(tokens[begin]), 0
    if not name or tokens[begin].content.endswith("/>"):
        return begin
    for place in range(begin, min(begin + _MOST_TOKENS, len(tokens))):
        content = tokens[place].content.lower() if tokens[place].type == "html_inline" else ""
        depth += content.startswith(f"<{name}") - content.startswith(f"</{name}")
        if content and depth == 0:
            break
    else:
        return begin
    text = "".join(one.content for one in tokens[begin + 1 : place] if one.type != "html_inline")
    end = tokens[place].meta[_PLACE][1]
    if name in HTML.notes:
        return begin if any(map(str.isalpha, text)) or source[end : end + 1].isalnum() else place
    return place if is_untouched(tokens[begin].content, name, HTML) else begin


def _name(token: Token) -> str:
    """Return the name of a start tag of HTML; empty: it is none."""
    tag = _TAG_NAME.match(token.content)
    return tag[1].lower() if tag else ""


def _end_of_pair(inline: Inline, token: Token, source: str, mark_id: int) -> Mark:
    mark = Mark(TagKind.CLOSE, _source_of(token, source), mark_id)
    if mark.source in IS_LABEL:
        begin, end = token.meta[_LABEL]
        inline.labels[mark_id] = source[begin:end]
    return mark


def _source_of(token: Token, source: str) -> str:
    begin, end = token.meta[_PLACE]
    if token.type == "strong_open":  # two delimiters, of which the parser turns the inner one into the tag
        begin -= 1
    elif token.type == "strong_close":
        end += 1
    return source[begin:end]


def write_inline(md: MarkdownIt, items: list[Item], inline: Inline, references: References) -> tuple[str, list[Item]]:
    """Return the source of a run on one line, but for its hard breaks, and the items as they are written.

    Args:
        items: a translation with the marks of `inline`.

    Raises:
        DoesNotFit: as it would have to be written, it is not read so.
    """
    items = _with_labels(_tidy(items), inline)
    for wanted in (items, [_with_asterisks(item) for item in items]):
        for spell in (inline.spelled, inline.spelled_often, _escaped):
            source = joined(wanted, spell).strip(" ")
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


def _tidy(items: list[Item]) -> list[Item]:
    """Return the items without spaces around hard breaks, and with those inside `**` outside: `** a**` is not bold."""
    tidy: list[Item] = []
    for item in merged(items):
        last = tidy[-1] if tidy else ""
        if isinstance(item, str):
            text = item.lstrip(" ")
            if isinstance(last, Mark) and _is_delimiter(last, TagKind.OPEN) and text != item:
                tidy.insert(_before_delimiters(tidy), " ")
                tidy.append(text)
            elif (isinstance(last, Mark) and last.source.endswith("\n")) or (
                isinstance(last, str) and last[-1:] == " "
            ):
                tidy.append(text)
            else:
                tidy.append(item)
            continue
        is_end = _is_delimiter(item, TagKind.CLOSE)
        if isinstance(last, str) and last[-1:] == " " and (is_end or item.source.endswith("\n")):
            tidy[-1] = last.rstrip(" ")
            tidy += [item, " "] if is_end else [item]
        else:
            tidy.append(item)
    return merged(tidy)


def _is_delimiter(mark: Mark, kind: TagKind) -> bool:
    return mark.kind is kind and mark.source[0] in "*_~"


def _before_delimiters(items: list[Item]) -> int:
    """Return the place before the opening delimiters at the end of the items."""
    place = len(items)
    while place and isinstance(mark := items[place - 1], Mark) and _is_delimiter(mark, TagKind.OPEN):
        place -= 1
    return place


def _with_labels(items: list[Item], inline: Inline) -> list[Item]:
    """Return the items with the name of the reference where a link's text is not that name any more."""
    labelled = list(items)
    begins: dict[int, int] = {}
    for place, item in enumerate(items):
        if isinstance(item, str):
            continue
        if item.kind is TagKind.OPEN:
            begins[item.id] = place + 1
        elif item.kind is TagKind.CLOSE and item.id in inline.labels:
            label = inline.labels[item.id]
            if joined(items[begins[item.id] : place], inline.spelled) != label:
                labelled[place] = item._replace(source=f"][{label}]")
    return labelled


def _with_asterisks(item: Item) -> Item:
    """Return `*` for `_`, which is emphasis inside words, too."""
    if isinstance(item, Mark) and set(item.source) == {"_"}:
        return item._replace(source="*" * len(item.source))
    return item


def _escaped(text: str) -> str:
    """Return the text with a backslash before everything that could be markup."""
    return _PUNCTUATION.sub(r"\\\1", text)


def joined(items: list[Item], spell: Callable[[str], str]) -> str:
    """Return the source of these items, with their text as `spell` writes it."""
    return "".join(spell(item) if isinstance(item, str) else item.source for item in items)
