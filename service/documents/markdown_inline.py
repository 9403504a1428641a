"""Inline text of Markdown: a run of words with its markup, and the same markup around the words of a translation.

markdown-it-py says what is markup and not where it stands: each of its rules is wrapped to note that.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from service.documents.draft import has_language
from service.documents.inline_tags import Item, Mark, merged, with_html_pairs
from service.text.document import TagKind

References: TypeAlias = dict[str, Any]  # what the parser keeps of a file: link reference definitions, footnotes
InlineRule: TypeAlias = Callable[[StateInline, bool], bool]

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")  # what a backslash may stand before: CommonMark, section 2.4
IS_LABEL = ("]", "][]")  # ends of a link whose text is also the name of its reference
_MAX_SHOWN = 400  # characters of code that the server sees, and protects in all of its length
_PLACE, _LABEL = "place", "label"  # in a token's `meta`


class DoesNotFit(ValueError):
    """A translation cannot be written so that it is read with the markup of its source."""


@dataclass(slots=True)
class Inline:
    """A run of inline text."""

    source: str
    items: list[Item] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)  # how the source escapes a character: "&": "&amp;"
    labels: dict[int, str] = field(default_factory=dict)  # by mark: the text that is also the name of a reference
    alts: dict[int, "Inline"] = field(default_factory=dict)  # by mark: the text of an image

    @property
    def has_language(self) -> bool:
        """Whether there is a letter outside the markup."""
        return any(isinstance(item, str) and has_language(item) for item in self.items)

    def spelled(self, text: str) -> str:
        """Return the text with the characters escaped that the source escapes."""
        return "".join(self.spellings.get(character, character) for character in text)


def parser() -> MarkdownIt:
    """Return a parser for the blocks of CommonMark with GitHub's tables and strikethrough, and footnotes.

    `read_inline` reads what is in the blocks.
    """
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(md, inline=False, move_to_end=False)
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
    for token in _flat(md.inline.parse(source, md, references, [])):
        if token.type == "softbreak":
            inline.items.append(" ")
        elif token.type == "text":
            inline.items.append(token.content)
        elif token.type == "text_special":
            inline.items.append(token.content)
            inline.spellings.setdefault(token.content, token.markup)
        elif token.nesting < 0:
            inline.items.append(_end_of_pair(inline, token, source, open_ids.pop()))
        else:
            kind, written = TagKind.OPEN if token.nesting else TagKind.POINT, _source_of(token, source)
            is_shown = token.type == "code_inline" and "\n" not in written and len(written) <= _MAX_SHOWN
            mark = Mark(kind, written, next(ids), is_shown)
            inline.items.append(mark)
            if token.nesting:
                open_ids.append(mark.id)
            elif token.type == "image":
                inline.alts[mark.id] = read_inline(md, token.content, references)
    inline.items = merged(with_html_pairs(inline.items))
    return inline


def _flat(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens with one in the place of each `<https://example.com>`, which stays whole."""
    is_in_autolink = False
    for token in tokens:
        if token.markup == "autolink":
            is_in_autolink = token.nesting > 0
            if is_in_autolink:
                yield Token("autolink", "", 0, meta=token.meta)
        elif not is_in_autolink:
            yield token


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
        for spell in (inline.spelled, _escaped):
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
