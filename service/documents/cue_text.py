"""The text of a cue, or of one speaker in it: its words, what frames them, and how they are written on lines."""

import re
from collections.abc import Iterable, Sequence
from html import unescape
from itertools import pairwise
from typing import NamedTuple

from service.documents.inline_tags import Item, Mark, escaped, merged, with_html_pairs
from service.text.document import TagKind

MAX_LINE = 42  # characters: what subtitles usually keep to
MAX_LINES = 2  # of a text that was on one line and has become too long for it

_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|<\d+:[\d:.]+>|\{\\[^{}\n]*\}")
_SPACE = re.compile(r"\s+")
_BEFORE = re.compile(r"\s*(?:[-\u2013\u2014\u2010♪♫]+|(?:>|&gt;){2,})\s*|\s+")  # a new speaker's mark, a song's note
_AFTER = re.compile(r"\s*[♪♫]+\s*\Z|\s+\Z")
_FIXED_SPACE = "\ufdd0"  # no character: stands for a space inside of a tag, where no line may end


class CueText(NamedTuple):
    """A text on one or more lines."""

    items: list[Item]  # with one space for each run of white space
    before: str
    after: str
    is_framed_by_line: bool  # whether `before` and `after` are around each line, not around all of them
    widths: tuple[int, ...]  # of its lines, in characters that are seen
    has_references: bool  # whether "&amp;" is "&", as in WebVTT

    @property
    def style(self) -> list[str]:
        """The tags around all of it."""
        return _TAG.findall(self.before + self.after)

    def written(self, items: Iterable[Item]) -> str:
        """Return other words in the same frame, on as many lines."""
        words = "".join(self._raw(item) for item in items).split()
        lines = [line.replace(_FIXED_SPACE, " ") for line in self._lines(words)]
        if self.is_framed_by_line:
            return "\n".join(f"{self.before}{line}{self.after}" for line in lines)
        return self.before + "\n".join(lines) + self.after

    def _raw(self, item: Item) -> str:
        if isinstance(item, Mark):
            return item.source.replace(" ", _FIXED_SPACE)
        return escaped(item) if self.has_references else item

    def _lines(self, words: list[str]) -> list[str]:
        """Return the words on lines: as long beside each other as those of the source, or else even."""
        widest = max(MAX_LINE, *self.widths)
        if len(self.widths) == 1:
            line = " ".join(words)
            return [line] if _width(line) <= widest else _even(words, MAX_LINES)
        lines = _alike(words, self.widths)
        return lines if max(map(_width, lines)) <= widest else _even(words, len(self.widths))


def read_cue_text(text: str, *, has_references: bool) -> CueText:
    """Take a text apart.

    Args:
        text: with a line feed between its lines.
        has_references: whether "&amp;" is "&".
    """
    lines = text.split("\n")
    widths = tuple(_width(line) for line in lines)
    framed = [_framed(line, has_references) for line in lines]
    before, _, after = framed[0]
    if len(lines) > 1 and before + after and all((one, other) == (before, after) for one, _, other in framed):
        items = in_one([items for _, items, _ in framed])
        return CueText(items, before, after, True, widths, has_references)
    before, items, after = _framed(text, has_references)
    return CueText(items, before, after, False, widths, has_references)


def in_one(runs: Iterable[list[Item]]) -> list[Item]:
    """Return the items of all runs with a space between them, and numbers that are different."""
    joined: list[Item] = []
    shift = 0
    for run in runs:
        if joined:
            joined.append(" ")
        joined += [item if isinstance(item, str) else item._replace(id=item.id + shift) for item in run]
        shift = max((item.id for item in joined if isinstance(item, Mark)), default=shift)
    return merged(joined)


def _framed(text: str, has_references: bool) -> tuple[str, list[Item], str]:
    """Return what stands before the words, the words, and what stands behind them."""
    items = with_html_pairs(_items(text))
    before = after = ""
    while items:
        first, last = items[0], items[-1]
        if isinstance(first, str) and (match := _BEFORE.match(first)):
            before += match[0]
            items[0] = first[match.end() :]
        elif isinstance(last, str) and (match := _AFTER.search(last)):
            after = match[0] + after
            items[-1] = last[: match.start()]
        elif isinstance(first, Mark) and first.kind is TagKind.POINT:
            before += first.source
            items = items[1:]
        elif isinstance(last, Mark) and last.kind is TagKind.POINT:
            after = last.source + after
            items = items[:-1]
        elif isinstance(first, Mark) and isinstance(last, Mark) and first.id == last.id:
            before, after = before + first.source, last.source + after
            items = items[1:-1]
        else:
            break
        items = merged(items)
    spaced = (_SPACE.sub(" ", item) if isinstance(item, str) else item for item in items)
    return before, [unescape(item) if has_references and isinstance(item, str) else item for item in spaced], after


def _items(text: str) -> list[Item]:
    items: list[Item] = []
    done = 0
    for number, match in enumerate(_TAG.finditer(text), start=1):
        items += text[done : match.start()], Mark(TagKind.POINT, match[0], number)
        done = match.end()
    return merged([*items, text[done:]])


def _alike(words: list[str], widths: Sequence[int]) -> list[str]:
    """Return the words on at most as many lines as there are widths, each with about its share of the whole."""
    scale = _width(" ".join(words)) / max(sum(widths), 1)
    cuts = [0]
    for number in range(1, len(widths)):
        end = scale * sum(widths[:number])
        counts = range(cuts[-1], len(words) + 1)
        cuts.append(min(counts, key=lambda count: abs(_width(" ".join(words[:count])) - end)))
    lines = [" ".join(words[begin:end]) for begin, end in pairwise([*cuts, len(words)])]
    return [line for line in lines if line] or [""]


def _even(words: list[str], num_lines: int) -> list[str]:
    """Return the words on at most so many lines, which are as even as can be."""
    total = _width(" ".join(words))
    for width in range(max(1, -(-total // num_lines)), total + 1):
        lines = _filled(words, width)
        if len(lines) <= num_lines:
            return lines
    return [" ".join(words)]


def _filled(words: list[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        line = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(line) <= width or not lines[-1]:
            lines[-1] = line
        else:
            lines.append(word)
    return lines


def _width(text: str) -> int:
    """Return the number of characters that are seen."""
    return len(_TAG.sub("", text.replace(_FIXED_SPACE, " ")))
