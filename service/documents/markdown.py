"""Markdown: CommonMark with GitHub's tables, task lists, alerts and strikethrough, footnotes and front matter.

A unit is the text of a block (a paragraph, a heading, a cell), the text of an image, or a block of HTML.  Code, front
matter, addresses and titles of links, and link reference definitions stay as they are.  The lines of a paragraph go as
one, which is wrapped again as wide as it was.  Lines that CommonMark takes for text and other dialects do not stay, but
for their titles:

    ::: tip A title      !!! note "A title"      === "A tab"      {{% notice %}}      {% endif %}      {: .wide }

For the parser of the rest there is a line in the place of such a line that ends the block before it, and after which
the lines that belong to it stand where they do.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from markdown_it.token import Token

from service.documents.draft import (
    Answer,
    DoesNotFit,
    Draft,
    Lines,
    Notice,
    Passage,
    Slot,
    Unit,
    Written,
    answered_slots,
    filled,
    has_language,
)
from service.documents.inline_tags import Item, Mark, decode, encode
from service.documents.markdown_inline import (
    IS_LABEL,
    Inline,
    References,
    parser,
    read_inline,
    reads_as,
    write_inline,
)
from service.records import TextFormat, Translation, WarningKind

_NOTHING = "<!-- -->"  # a block by itself, in any other block
_ITEM = f"-   {_NOTHING}"  # lines below it are indented by four
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
    rf"{_BEFORE}(?:(?:\{{\{{[^{{}}]*\}}\}}|\{{%(?:[^%]|%(?!\}}))*%\}}|<%[^%]*%>)[ \t]*)+"
    rf"|{_BEFORE.replace('before', 'above')}(?:\{{(?::[^{{}}]*|[ \t]*[#.][^{{}}]*)\}}|\[\[?_?(?:TOC|toc)_?\]?\]"
    r"|import[ \t][^'\"]*from[ \t]+['\"][^'\"]+['\"];?|<<<[ \t]*\S+)[ \t]*"
)


class DialectLine(NamedTuple):
    """A line of another dialect."""

    in_its_place: str  # for the parser
    begin: int  # of its title in the line
    end: int  # the same: it has none


def dialect_line(line: str) -> DialectLine | None:
    """Return what a line of another dialect is to the parser, and where its title is; None: the line is CommonMark."""
    if line.lstrip(" \t>")[:1] not in _FIRST:
        return None
    if match := _WITH_BODY.fullmatch(line):
        place = match.span("title") if match["title"] is not None else match.span("tab")
        return DialectLine(match["before"] + _ITEM, *(place if place[0] >= 0 else (0, 0)))
    if match := _CONTAINER.fullmatch(line):
        place = match.span("label") if match["label"] else match.span("title")
        return DialectLine(match["before"] + _NOTHING, *(place if place[0] >= 0 else (0, 0)))
    if match := _WITHOUT_TITLE.fullmatch(line):
        return DialectLine((match["before"] or match["above"] or "") + _NOTHING, 0, 0)
    return None


_LINE_END = re.compile(r"\r\n|\n|\r")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_ALERT = re.compile(r"\[![A-Z]+\][ \t]*")
_LITERAL_HTML = re.compile(r"\s*<(script|pre|style|textarea|!|\?)", re.IGNORECASE)
_HTML_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"(\d+)([.)])")
_BARE_PIPE = re.compile(r"(?<!\\)\|")
_SPACE = " \t"
_TITLE = Token("title", "", 0)  # what the title in a line of another dialect stands in


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


class _SourceLine(NamedTuple):
    """A line of a file."""

    begin: int
    text: str  # without its end

    def part(self, column: int, length: int) -> _Line:
        """Return a part of it."""
        return _Line(self.begin + column, self.begin + column + length, self.text[:column])


def read(text: str) -> Draft:
    """Return the draft of a Markdown file."""
    file = _File(text)
    return Draft(tuple(unit for block in file.blocks for unit in block.units()), file.write)


class _File:
    """A Markdown file and its blocks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._md = parser()
        self._references: References = {}  # the parser fills it
        self._lines = list(_source_lines(text))
        self._lost: list[Notice] = []
        self._row = self._column = 0  # where the last cell of a table ended
        tokens = self._md.parse("\n".join(_as_commonmark(self._lines)), self._references)
        blocks = [block for place in range(len(tokens)) if (block := self._block(tokens, place))]
        self.blocks = sorted([*blocks, *self._titles(tokens)], key=lambda block: block.lines[0].begin)

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
                lines = [_content(self._lines[token.map[0] + i], part) for i, part in enumerate(parts)]
        except ValueError:
            self._lost.append(Notice(WarningKind.NOT_TRANSLATED, token.map[0] + 1))
            return None
        if opener.type == "paragraph_open":
            lines = self._without_marker(lines, tokens[place - 2].type if place > 1 else "")
        source = "\n".join(self._text[line.begin : line.end] for line in lines)
        number = token.map[0] + 1
        if opener is not token:
            block = _Block(tuple(lines), read_inline(self._md, source, self._references), number, opener)
            return block if any(block.units()) else None
        is_language = not _LITERAL_HTML.match(source) and has_language(_HTML_TAG.sub("", source))
        return _Block(tuple(lines), Inline(source), number, opener) if is_language else None

    def _titles(self, tokens: list[Token]) -> Iterator[_Block]:
        """Yield the titles in lines of other dialects."""
        code = {
            row for token in tokens if token.map and token.type in {"fence", "code_block"} for row in range(*token.map)
        }
        for row in range(_num_lines_of_front_matter(self._lines), len(self._lines)):
            line = self._lines[row]
            found = dialect_line(line.text) if row not in code else None
            if found is not None and has_language(line.text[found.begin : found.end]):
                inline = read_inline(self._md, line.text[found.begin : found.end], self._references)
                yield _Block((line.part(found.begin, found.end - found.begin),), inline, row + 1, _TITLE)

    def _cell(self, token: Token) -> _Line:
        """Return where a cell is in its row: after the last one."""
        assert token.map is not None
        number = token.map[0]
        line = self._lines[number]
        text = token.content.replace("|", "\\|")  # the parser has taken these backslashes away
        column = line.text.index(text, self._column if number == self._row else 0)
        self._row, self._column = number, column + len(text)
        return line.part(column, len(text))

    def _without_marker(self, lines: list[_Line], parent: str) -> list[_Line]:
        """Return the lines of a paragraph without the `[ ] ` of a task or the `[!NOTE]` of an alert."""
        first = self._text[lines[0].begin : lines[0].end]
        if parent == "list_item_open" and (task := _TASK.match(first)):
            marked = lines[0]
            lines = [_Line(marked.begin + task.end(), marked.end, marked.prefix + task[0]), *lines[1:]]
        elif parent == "blockquote_open" and len(lines) > 1 and _ALERT.fullmatch(first):
            lines = lines[1:]
        return lines

    def write(self, translations: Sequence[Translation]) -> Written:
        """Return the file with these translations of its units."""
        passages = (Passage(tuple(block.units()), partial(self._slots, block)) for block in self.blocks)
        slots, notices = answered_slots(passages, translations)
        kept = self._fitting([], slots, self._shape(self._text))
        lines, left = Lines(self._text), {slot.begin for slot in slots} - {slot.begin for slot in kept}
        notices += (Notice(WarningKind.NOT_TRANSLATED, lines.number(begin)) for begin in sorted(left))
        return Written(filled(self._text, kept), (*self._lost, *notices))

    def _fitting(self, kept: list[Slot], slots: list[Slot], shape: list[tuple[str, int]]) -> list[Slot]:
        """Return the slots, after those that are kept, with which the file has the same blocks; mostly all.

        Each half is tried as a whole: to find one slot among a thousand takes some twenty looks at the file.
        """
        if not slots or self._shape(filled(self._text, [*kept, *slots])) == shape:
            return slots
        if len(slots) == 1:
            return []
        half = len(slots) // 2
        first = self._fitting(kept, slots[:half], shape)
        return first + self._fitting([*kept, *first], slots[half:], shape)

    def _shape(self, text: str) -> list[tuple[str, int]]:
        """Return the kinds of a file's blocks."""
        lines = _as_commonmark(list(_source_lines(text)))
        return [(token.type, token.level) for token in self._md.parse("\n".join(lines), {})]

    def _slots(self, block: _Block, answers: Sequence[Answer]) -> Iterator[Slot]:
        text = self._on_lines(block, self._source(block, [answer.text for answer in answers]))
        yield Slot(block.lines[0].begin, block.lines[-1].end, text)

    def _source(self, block: _Block, texts: list[str]) -> str:
        """Return the block's new source, without prefixes; raises DoesNotFit."""
        if block.is_html:
            return texts[0]
        inline = block.inline
        texts_left = iter(texts)
        items = decode(next(texts_left), inline.items) if inline.has_language else inline.items
        sources: dict[int, str] = {}  # of images, by mark
        for mark_id, alt in inline.alts.items():
            if alt.has_language:
                sources[mark_id] = self._alt(alt, next(texts_left))
        items = [_with_alt(item, inline, sources) for item in items]
        source, items = write_inline(self._md, items, inline, self._references)
        if block.is_cell:
            return _BARE_PIPE.sub(r"\\|", source)
        if block.opener is _TITLE:
            return source.replace('"', "'")  # it may stand in quotes
        source = self._as_block(block, source, items)
        if block.is_wrapped:
            wrapped = _wrapped(source, max(len(line) for line in inline.source.split("\n")))
            if self._is_block(block, wrapped) and self._reads_as(wrapped, items):
                return wrapped
        return source

    def _alt(self, alt: Inline, text: str) -> str:
        return write_inline(self._md, decode(text, alt.items), alt, self._references)[0]

    def _as_block(self, block: _Block, source: str, items: list[Item]) -> str:
        """Return the source, with a backslash where its beginning or its end would be read as something else."""
        for candidate in (
            source,
            _NUMBER.sub(r"\1\\\2", source, count=1),
            "\\" + source,
            f"{source[:-1]}\\{source[-1:]}",
        ):
            if self._is_block(block, candidate) and self._reads_as(candidate, items):
                return candidate
        raise DoesNotFit("the translation is read as another kind of block")

    def _reads_as(self, source: str, items: list[Item]) -> bool:
        return reads_as(self._md, source, items, self._references)

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
        newline = _LINE_END.search(self._text)
        prefixes = [line.prefix for line in block.lines[1:]] or [""]
        prefixes += prefixes[-1:] * (len(others) - len(prefixes))
        end = newline[0] if newline else "\n"
        return first + "".join(end + prefix + line for prefix, line in zip(prefixes, others, strict=False))


def _source_lines(text: str) -> Iterator[_SourceLine]:
    begin = 0
    for match in _LINE_END.finditer(text):
        yield _SourceLine(begin, text[begin : match.start()])
        begin = match.end()
    yield _SourceLine(begin, text[begin:])


def _as_commonmark(lines: list[_SourceLine]) -> list[str]:
    """Return the lines with empty ones in the place of front matter, and others for those of other dialects."""
    num_lines = _num_lines_of_front_matter(lines)
    texts = [line.text for line in lines[num_lines:]]
    return [""] * num_lines + [found.in_its_place if (found := dialect_line(text)) else text for text in texts]


def _num_lines_of_front_matter(lines: list[_SourceLine]) -> int:
    matter = _FRONT_MATTER.match("\n".join(line.text for line in lines))
    return matter[0].count("\n") + 1 if matter else 0


def _content(line: _SourceLine, part: str) -> _Line:
    """Return where the text of a block is in a line; indentation and a heading's closing `#` are no text.

    Raises:
        ValueError: it is not there.
    """
    text = part.lstrip(_SPACE)
    column = line.text.rindex(text)
    if line.text[column + len(text) :].strip(_SPACE + "#"):
        raise ValueError("the text is not at the end of its line")
    return line.part(column, len(text))


def _with_alt(item: Item, inline: Inline, sources: dict[int, str]) -> Item:
    """Return an image with its new text; one whose text was the name of its reference gets that name."""
    if isinstance(item, str) or item.id not in sources:
        return item
    alt = inline.alts[item.id].source
    rest = item.source[len("![") + len(alt) :]
    if rest in IS_LABEL and sources[item.id] != alt:
        rest = f"][{alt}]"
    return item._replace(source=f"![{sources[item.id]}{rest}")


def _wrapped(source: str, width: int) -> str:
    lines = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False)
        for line in source.split("\n")
    )
    return "\n".join(lines)
