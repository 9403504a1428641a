"""Markdown: CommonMark with GitHub's tables, task lists, alerts and strikethrough, footnotes and front matter.

A unit is the text of a block (a paragraph, a heading, a cell), the text of an image, or a block of HTML.  Code, front
matter, addresses and titles of links, and link reference definitions stay as they are.  The lines of a paragraph go as
one, which is wrapped again as wide as it was.  Lines that CommonMark takes for text and other dialects do not stay, but
for their titles:

    ::: tip A title      !!! note "A title"      === "A tab"      {{% notice %}}      {% endif %}      {: .wide }

For the parser of the rest there is a line in the place of such a line that ends the block before it, after which the
lines that belong to it stand where they do: a heading with the title, or a comment.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from markdown_it.token import Token

from service.documents.draft import Answer, DoesNotFit, Notice, Part, Passage, Slot, Unit, filled, has_language
from service.documents.inline import Item, Mark, encode
from service.documents.markdown_inline import (
    IS_LABEL,
    Inline,
    References,
    parser,
    read_inline,
    reads_as,
    translated_items,
    write_inline,
)
from service.records import TextFormat

_NOTHING = "<!-- -->"  # a block by itself, in any other block
_ITEM = "-   "  # lines below it are indented by four
_FIRST = frozenset("!/:<=?[i{")
_BEFORE = r"(?P<before>(?:[ \t]|>)*)"
_CONTAINER = re.compile(
    rf"{_BEFORE}(?::{{3,}}|/{{3}}(?=[ \t]*(?:\Z|[a-z-]+[ \t]*(?:\||\Z))))[ \t]*"
    r"(?:\{[^{}]*\}|[\w./+-]+)?(?:[ \t]*\|)?[ \t]*"
    r"(?:\[(?P<label>[^\[\]]+)\]|(?P<title>[^\s{\[:][^{}]*?))?[ \t]*(?:\{[^{}]*\})?[ \t]*:*[ \t]*"
)
_WITH_BODY = re.compile(
    rf"{_BEFORE}(?:(?:!!!|\?\?\?)\+?[ \t]+(?:[a-z][\w-]*[ \t]*){{0,4}}(?:\"(?P<title>[^\"]*)\")?"
    r"|===[!+]?[ \t]+\"(?P<tab>[^\"]+)\")[ \t]*"
)
_WITHOUT_TITLE = re.compile(
    rf"{_BEFORE}(?:(?:(?:\{{\{{[^{{}}]*\}}\}}|\{{%(?:[^%]|%(?!\}}))*%\}}|<%[^%]*%>)[ \t]*)+"
    r"|(?:\{(?::[^{}]*|[ \t]*[#.][^{}]*)\}|\[\[?_?(?:TOC|toc)_?\]?\]"
    r"|import[ \t][^'\"]*from[ \t]+['\"][^'\"]+['\"];?|<<<[ \t]*\S+)[ \t]*)"
)


def _line_as_commonmark(line: str) -> str:
    """Return what the parser reads in the place of a line: for most lines, the line."""
    if line.lstrip(" \t>")[:1] not in _FIRST:
        return line
    for pattern, item in ((_WITH_BODY, _ITEM), (_CONTAINER, ""), (_WITHOUT_TITLE, "")):
        if match := pattern.fullmatch(line):
            title = next(filter(None, (match.groupdict().get(name) for name in ("title", "tab", "label"))), "")
            return f"{match['before']}{item}{f'# {title}' if title.strip() else _NOTHING}"
    return line


_LINE_END = re.compile(r"\r\n|\n|\r")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_ALERT = re.compile(r"\[![A-Z]+\][ \t]*")
_LITERAL_HTML = re.compile(r"\s*<(script|pre|style|textarea|!|\?)", re.IGNORECASE)
_HTML_TAG = re.compile(r"<[^>]*>")
_NOT_FOUND = "the text is not in its lines as it is read, so that a translation could not be written there"
_NUMBER = re.compile(r"(\d+)([.)])")
_BARE_PIPE = re.compile(r"(?<!\\)\|")
_SPACE = " \t"


class _Line(NamedTuple):
    """What a block has of one line of a file."""

    begin: int  # in the file
    end: int
    prefix: str  # what stands before and belongs to the blocks around: indentation, "> ", "- "


class _Block(NamedTuple):
    """A run of text and where it stands."""

    lines: tuple[_Line, ...]
    inline: Inline  # without items where it is HTML
    number: int  # of the first line, from 1
    opener: Token  # what it stands in

    @property
    def is_cell(self) -> bool:
        return self.opener.type in {"th_open", "td_open"}

    @property
    def is_html(self) -> bool:
        return self.opener.type == "html_block"

    @property
    def is_wrapped(self) -> bool:
        """Whether its text goes over several lines that are no lines to the reader."""
        fixed = sum(item.source.count("\n") for item in self.inline.items if isinstance(item, Mark))
        return self.inline.source.count("\n") > fixed

    def units(self) -> Iterator[Unit]:
        """Yield what is to be translated: the text, then those of its images."""
        if self.is_html:
            yield Unit(self.inline.source, TextFormat.HTML, self.number)
            return
        for run in (self.inline, *self.inline.alts.values()):
            if run.has_language:
                yield Unit(encode(run.items), TextFormat.XLIFF, self.number)


def read(text: str, _: str = "") -> Part:
    """Return a Markdown file."""
    return _File(text)


class _File(Part):
    """A Markdown file and its blocks."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._md = parser()
        self._references: References = {}  # the parser fills it
        self._lines = _LINE_END.split(text)
        self._begins = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._row = self._column = 0  # where the last cell of a table ended
        self._parsed = _as_commonmark(self._lines)
        tokens = self._md.parse("\n".join(self._parsed), self._references)
        for place in range(len(tokens)):
            if block := self._block(tokens, place):
                self.passages.append(Passage(tuple(block.units()), partial(self._slots, block)))

    def _block(self, tokens: list[Token], place: int) -> _Block | None:
        """Return the block of a token; None where it is none, or has no language."""
        token = tokens[place]
        if token.map is None or token.type not in {"inline", "html_block"} or not has_language(token.content):
            return None
        opener = token if token.type == "html_block" else tokens[place - 1]
        try:
            if opener.type in {"th_open", "td_open"}:
                lines = [self._cell(token)]
            else:
                parts = token.content.rstrip("\n").split("\n")
                lines = [self._content(row, part) for row, part in enumerate(parts, start=token.map[0])]
        except ValueError:
            self.lost.append(Notice(token.map[0] + 1, _NOT_FOUND, token.content))
            return None
        if opener.type == "paragraph_open":
            lines = self._without_marker(lines, tokens[place - 2].type if place > 1 else "")
        source = "\n".join(self.text[line.begin : line.end] for line in lines)
        number = token.map[0] + 1
        if opener is not token:
            block = _Block(tuple(lines), read_inline(self._md, source, self._references), number, opener)
            return block if any(block.units()) else None
        is_language = not _LITERAL_HTML.match(source) and has_language(_HTML_TAG.sub("", source))
        return _Block(tuple(lines), Inline(source), number, opener) if is_language else None

    def _part(self, row: int, column: int, text: str) -> _Line:
        begin = self._begins[row] + column
        return _Line(begin, begin + len(text), self._lines[row][:column])

    def _content(self, row: int, part: str) -> _Line:
        """Return where the text of a block is in a line; indentation and a heading's closing `#` are no text.

        Raises:
            ValueError: it is not there.
        """
        text, line = part.lstrip(_SPACE), self._lines[row]
        column = line.rindex(text)
        if line[column + len(text) :].strip(_SPACE + "#") and line == self._parsed[row]:
            raise ValueError("the text is not at the end of its line")
        return self._part(row, column, text)

    def _cell(self, token: Token) -> _Line:
        """Return where a cell is in its row: after the last one."""
        assert token.map is not None
        row = token.map[0]
        text = token.content.replace("|", "\\|")  # the parser has taken these backslashes away
        column = self._lines[row].index(text, self._column if row == self._row else 0)
        self._row, self._column = row, column + len(text)
        return self._part(row, column, text)

    def _without_marker(self, lines: list[_Line], parent: str) -> list[_Line]:
        """Return the lines of a paragraph without the `[ ] ` of a task or the `[!NOTE]` of an alert."""
        first = self.text[lines[0].begin : lines[0].end]
        if parent == "list_item_open" and (task := _TASK.match(first)):
            marked = lines[0]
            lines = [_Line(marked.begin + task.end(), marked.end, marked.prefix + task[0]), *lines[1:]]
        elif parent == "blockquote_open" and len(lines) > 1 and _ALERT.fullmatch(first):
            lines = lines[1:]
        return lines

    def fitting(self, slots: list[Slot]) -> list[Slot]:
        """Return those slots with which the file has the same blocks; mostly all."""
        return self._fitting([], slots, self._shape(self.text))

    def _fitting(self, kept: list[Slot], slots: list[Slot], shape: list[tuple[str, int]]) -> list[Slot]:
        """Return the slots, after those that are kept, with which the file has this shape.

        Each half is tried as a whole: to find one slot among a thousand takes some twenty looks at the file.
        """
        if not slots or self._shape(filled(self.text, [*kept, *slots])) == shape:
            return slots
        if len(slots) == 1:
            return []
        half = len(slots) // 2
        first = self._fitting(kept, slots[:half], shape)
        return first + self._fitting([*kept, *first], slots[half:], shape)

    def _shape(self, text: str) -> list[tuple[str, int]]:
        """Return the kinds of a file's blocks."""
        lines = _as_commonmark(_LINE_END.split(text))
        return [(token.type, token.level) for token in self._md.parse("\n".join(lines), {})]

    def _slots(self, block: _Block, answers: Sequence[Answer]) -> Iterator[Slot]:
        text = self._on_lines(block, self._source(block, [answer.text for answer in answers]))
        yield Slot(block.lines[0].begin, block.lines[-1].end, text)

    def _source(self, block: _Block, texts: list[str]) -> str:
        """Return the block's new source, without prefixes; raises DoesNotFit."""
        if block.is_html:
            return texts[0]
        inline, texts_left = block.inline, iter(texts)
        items = translated_items(next(texts_left), inline) if inline.has_language else inline.items
        for mark_id, alt in inline.alts.items():
            if alt.has_language:
                alt_items = translated_items(next(texts_left), alt)
                written, _ = write_inline(self._md, alt_items, alt, self._references)
                items = [
                    _with_alt(one, alt.source, written) if isinstance(one, Mark) and one.id == mark_id else one
                    for one in items
                ]
        source, items = write_inline(self._md, items, inline, self._references)
        if block.is_cell:
            return _BARE_PIPE.sub(r"\\|", source)
        if self.text[block.lines[-1].end :].startswith('"'):  # a title of another dialect
            source = source.replace('"', "'")
            items = [item.replace('"', "'") if isinstance(item, str) else item for item in items]
        source = self._as_block(block, source, items)
        if block.is_wrapped:
            wrapped = _wrapped(source, max(len(line) for line in inline.source.split("\n")))
            if self._is_block(block, wrapped) and reads_as(self._md, wrapped, items, self._references):
                return wrapped
        return source

    def _as_block(self, block: _Block, source: str, items: list[Item]) -> str:
        """Return the source, with a backslash where its beginning or its end would be read as something else."""
        for candidate in (
            source,
            _NUMBER.sub(r"\1\\\2", source, count=1),
            "\\" + source,
            f"{source[:-1]}\\{source[-1:]}",
        ):
            if self._is_block(block, candidate) and reads_as(self._md, candidate, items, self._references):
                return candidate
        raise DoesNotFit("the translation is read as another kind of block")

    def _is_block(self, block: _Block, source: str) -> bool:
        """Whether the source is one block, of the same kind."""
        markup = block.opener.markup  # of a heading: "##" before it, or "=" below it
        before, after = ("# ", "") if markup.startswith("#") else ("", f"\n{markup * 3}")
        tokens = self._md.parse(before + source + after, {})
        kind = "paragraph_open" if block.opener.type == "dt_open" else block.opener.type
        return len(tokens) == 3 and tokens[0].type == kind and tokens[1].content == source

    def _on_lines(self, block: _Block, source: str) -> str:
        """Return the source with line ends and prefixes as the block has them."""
        first, *others = source.split("\n")
        if not others:
            return first
        newline = _LINE_END.search(self.text)
        prefixes = [line.prefix for line in block.lines[1:]] or [""]
        prefixes += prefixes[-1:] * (len(others) - len(prefixes))
        end = newline[0] if newline else "\n"
        return first + "".join(end + prefix + line for prefix, line in zip(prefixes, others, strict=False))


def _as_commonmark(lines: list[str]) -> list[str]:
    """Return what the parser reads: the lines with empty ones in the place of front matter."""
    matter = _FRONT_MATTER.match("\n".join(lines))
    num_lines = matter[0].count("\n") + 1 if matter else 0
    return [""] * num_lines + list(map(_line_as_commonmark, lines[num_lines:]))


def _with_alt(image: Mark, alt: str, written: str) -> Mark:
    """Return an image with another text; one whose text was the name of its reference gets that name."""
    rest = image.source[len("![") + len(alt) :]
    if rest in IS_LABEL and written != alt:
        rest = f"][{alt}]"
    return image._replace(source=f"![{written}{rest}")


def _wrapped(source: str, width: int) -> str:
    lines = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False)
        for line in source.split("\n")
    )
    return "\n".join(lines)
