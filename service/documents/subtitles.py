"""SRT and WebVTT: cues keep numbers, times, settings, notes, styles and, as far as it fits, the number of their lines.

A sentence that runs over several cues is translated as one and cut again.  Of a cue, or of one speaker in it, the words
are translated; everything around them stays.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import unescape
from itertools import pairwise
from typing import NamedTuple

from service.documents.draft import Answer, Lines, Part, Passage, Slot, Unit, has_language
from service.documents.inline import (
    ELEMENT,
    Item,
    Mark,
    decode_parts,
    encode,
    escaped,
    merged,
    with_html_pairs,
)
from service.records import TextFormat
from service.text.segments import TagKind
from service.text.sentence_boundaries import STARTERS

MAX_LINE = 42  # characters: what subtitles usually keep to
MAX_LINES = 2  # of a text that was on one line and has become too long for it

_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|<\d+:[\d:.]+>|\{\\[^{}\n]*\}")
_SPACE = re.compile(r"\s+")
_BEFORE = re.compile(r"\s*(?:[-\u2013\u2014\u2010♪♫]+|(?:>|&gt;){2,})\s*|\s+")  # a new speaker's mark, a song's note
_AFTER = re.compile(r"\s*[♪♫]+\s*\Z|\s+\Z")
_FIXED_SPACE = "\ufdd0"  # no character: stands for a space inside of a tag, where no line may end


class _Frame(NamedTuple):
    """The words of one speaker in one cue, and what is around them."""

    before: str
    items: list[Item]  # with one space for each run of white space
    after: str
    is_of_each_line: bool = False  # whether `before` and `after` are around each line, not around all of them


def _frame_of(lines: Sequence[str], has_references: bool) -> _Frame:
    framed = [_framed(line, has_references) for line in lines]
    frames = {(one.before, one.after) for one in framed}
    if len(lines) > 1 and len(frames) == 1 and any(*frames):
        return framed[0]._replace(items=in_one(one.items for one in framed), is_of_each_line=True)
    return _framed("\n".join(lines), has_references)


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


def _framed(text: str, has_references: bool) -> _Frame:
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
    words = [unescape(item) if has_references and isinstance(item, str) else item for item in spaced]
    return _Frame(before, words, after)


def _items(text: str) -> list[Item]:
    items: list[Item] = []
    done = 0
    for number, match in enumerate(_TAG.finditer(text), start=1):
        items += text[done : match.start()], Mark(TagKind.POINT, match[0], number)
        done = match.end()
    return merged([*items, text[done:]])


def _on_lines(words: list[str], widths: Sequence[int]) -> list[str]:
    """Return words on lines, as long beside each other as those of the source were, or else even."""
    widest = max(MAX_LINE, *widths)
    lines = _alike(words, widths) if len(widths) > 1 else [" ".join(words)]
    return lines if max(map(_width, lines)) <= widest else _alike(words, [1] * max(len(widths), MAX_LINES))


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


def _width(text: str) -> int:
    """Return the number of characters that are seen."""
    return len(_TAG.sub("", text.replace(_FIXED_SPACE, " ")))


MAX_PAUSE_S = 3.0  # between cues of one sentence
MAX_CUES = 6  # that are translated as one where nothing ends a sentence

_TIME = r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)"
_TIMING = re.compile(rf"(?:(?<=[\r\n])|\A)[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\r\n]*(?:\r\n|\n|\r|\Z)")
_LINE = re.compile(r"((?:(?!\\N)[^\r\n])*+)(?:\r\n|\n|\r|\\N|\Z)")  # "\N" is the line break of ASS
_LINE_END = re.compile(r"\r\n|\n|\r")
_NEW_SPEAKER = re.compile(  # a dash, or the marks of closed captions: ">>", of another subject ">>>"
    r"(?:<[^>]*>|\{[^}]*\}|\s)*(?:[-\u2010\u2013\u2014]\s*(?:<[^>]*>)*[^\W\d]|(?:>|&gt;){2,}\s*\S)"
)
_BETWEEN_WORDS = frozenset({*STARTERS["en"], *STARTERS["de"]})  # a line with such a word at its end goes on
_ANY_TAG = re.compile(r"<[^>]*>|\{[^}]*\}")
_LISTED_FROM = 3  # lines; two are a list where they are short
_SENTENCE_END = re.compile(r"[.!?…。\uff01\uff1f]\W*\Z")
_SOUND = re.compile(r"[\[(\uff08].*[\])\uff09]\Z", re.DOTALL)


class _Text(NamedTuple):
    """What one speaker says in one cue."""

    begin: int  # in the file
    end: int
    frame: _Frame
    widths: tuple[int, ...]  # of its lines, in characters that are seen
    starts_s: float  # of the cue
    ends_s: float
    begins_anew: bool  # with a new speaker, or as an item of a list
    line_end: str  # between its lines

    @property
    def words(self) -> str:
        return "".join(item for item in self.frame.items if isinstance(item, str))

    @property
    def style(self) -> list[str]:
        """The tags around all of it."""
        return _TAG.findall(self.frame.before + self.frame.after)

    @property
    def is_alone(self) -> bool:
        """Whether it belongs to no sentence: a sound, or a line of a song."""
        return bool(_SOUND.match(self.words)) or "♪" in self.frame.before + self.frame.after

    def goes_on_in(self, other: "_Text") -> bool:
        """Whether the next text may continue its sentence."""
        has_ended = _SENTENCE_END.search(self.words) and not other.words[:1].islower()
        return not (
            has_ended
            or other.begins_anew
            or self.is_alone
            or other.is_alone
            or self.style != other.style
            or other.starts_s - self.ends_s > MAX_PAUSE_S
        )

    def written(self, items: Iterable[Item], has_references: bool) -> str:
        """Return other words in the same frame, on as many lines."""
        words = "".join(_raw(item, has_references) for item in items).split()
        lines = [line.replace(_FIXED_SPACE, " ") for line in _on_lines(words, self.widths)]
        before, _, after, is_of_each_line = self.frame
        if is_of_each_line:
            lines = [f"{before}{line}{after}" for line in lines]
            before = after = ""
        return (before + "\n".join(lines) + after).replace("\n", self.line_end)


def _raw(item: Item, has_references: bool) -> str:
    if isinstance(item, Mark):
        return item.source.replace(" ", _FIXED_SPACE)
    return escaped(item) if has_references else item


def read(text: str, _: str = "", *, has_references: bool) -> Part:
    """Return an SRT file, or of a WebVTT file, which has references ("&amp;").

    Raises:
        ValueError: there is no cue in it.
    """
    if not _TIMING.search(text) and has_language(text.replace("WEBVTT", "", 1)):
        raise ValueError("there is no cue in the file: no line like 00:00:01,000 --> 00:00:02,000")
    lines = Lines(text)
    part = Part(text)
    for group in _groups([one for one in _texts(text, has_references) if has_language(one.words)]):
        unit = Unit(encode(_items_of(group)), TextFormat.XLIFF, lines.number(group[0].begin))
        part.passages.append(Passage((unit,), partial(_slots, group, has_references)))
    return part


def _items_of(group: list[_Text]) -> list[Item]:
    return in_one(text.frame.items for text in group)


def _slots(group: list[_Text], has_references: bool, answers: Sequence[Answer]) -> Iterator[Slot]:
    items = _items_of(group)
    begins = [len(encode(_items_of(group[:number]))) + 1 for number in range(1, len(group))]
    pieces = _cut(encode(items), begins, answers[0].text)
    for text, part in zip(group, decode_parts(pieces, items), strict=True):
        yield Slot(text.begin, text.end, text.written(part, has_references))


def _texts(source: str, has_references: bool) -> Iterator[_Text]:
    timings, newline = list(_TIMING.finditer(source)), _LINE_END.search(source)
    limits = [*(timing.start() for timing in timings[1:]), len(source)][: len(timings)]
    for timing, limit in zip(timings, limits, strict=True):
        starts_s, ends_s = _seconds(*timing.groups()[:3]), _seconds(*timing.groups()[3:])
        blocks = _blocks(source, timing.end(), limit)
        if has_references:
            # What follows a blank line is no part of the cue: a note, a style, the name of the next cue.
            blocks = blocks[:1] if blocks and blocks[0][0][0] == timing.end() else []
        elif blocks and limit < len(source):
            last = blocks[-1].pop()  # the number of the next cue
            if not source[slice(*last)].strip().isdigit():
                blocks[-1].append(last)
        for lines, is_item in (part for block in blocks for part in _parts(source, block)):
            texts = [source[slice(*line)] for line in lines]
            frame, widths = _frame_of(texts, has_references), tuple(map(_width, texts))
            begins_anew = is_item or bool(_NEW_SPEAKER.match("\n".join(texts)))
            line_end = source[lines[0][1] : lines[1][0]] if len(lines) > 1 else newline[0] if newline else "\n"
            yield _Text(lines[0][0], lines[-1][1], frame, widths, starts_s, ends_s, begins_anew, line_end)


def _seconds(hours: str | None, minutes: str, seconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))


def _blocks(source: str, begin: int, end: int) -> list[list[tuple[int, int]]]:
    """Return begins and ends of the lines between two places, with those that no blank line parts in one list."""
    blocks: list[list[tuple[int, int]]] = []
    is_blank = True
    for line in _LINE.finditer(source, begin, end):
        if line[1].strip():
            blocks += [[]] if is_blank else []
            blocks[-1].append(line.span(1))
        is_blank = not line[1].strip()
    return blocks


def _parts(source: str, lines: list[tuple[int, int]]) -> Iterator[tuple[list[tuple[int, int]], bool]]:
    """Yield the lines of each speaker, those of a list one by one; and whether they are from a list."""
    speakers: list[list[tuple[int, int]]] = []
    for line in lines:
        if not speakers or _NEW_SPEAKER.match(source[slice(*line)]):
            speakers.append([])
        speakers[-1].append(line)
    for speaker in speakers:
        if _is_list([_ANY_TAG.sub("", source[slice(*line)]).strip() for line in speaker]):
            yield from (([line], True) for line in speaker)
        else:
            yield speaker, False


def _is_list(lines: Sequence[str]) -> bool:
    """Whether lines are items of a list, a sign or the like, not a sentence on several lines.

    Each begins with a capital or a number, and none but the last ends with a comma or a word that needs another one.
    """
    words = [line.split() for line in lines]
    if not all(words) or not all(line[:1].isupper() or line[:1].isdigit() for line in lines):
        return False
    ends = [line[-1] for line in words[:-1]]
    is_open = any(end.endswith((",", "-")) or end in _BETWEEN_WORDS for end in ends)
    is_short = len(lines) > 1 and all(len(line) <= 2 and all(word[0].isupper() for word in line) for line in words)
    return not is_open and (len(lines) >= _LISTED_FROM or is_short)


def _groups(texts: list[_Text]) -> Iterator[list[_Text]]:
    """Yield the texts that are translated as one."""
    group: list[_Text] = []
    for text in texts:
        if group and (len(group) == MAX_CUES or not group[-1].goes_on_in(text)):
            yield group
            group = []
        group.append(text)
    if group:
        yield group


_SLACK = 0.1  # share of the text that a cut may be off to stand behind punctuation as it does in the source
_PAUSE = re.compile(r"[,;:.!?…\u2014\u2013-]\s*\Z")
_REFERENCE = re.compile(r"&[#\w]+;")


def _cut(source: str, begins: Sequence[int], text: str) -> list[str]:
    """Return a translation, in XLIFF, in as many pieces as its source; the last again where there are too few words.

    Each piece has about its share of the length.

    Args:
        source: what was translated.
        begins: where in it the second piece and those after it begin.
        text: the translation.
    """
    places = _cuts(text)
    cuts: list[int] = []
    for number, begin in enumerate(begins):
        first = bisect_right(places, cuts[-1]) if cuts else 0
        allowed = places[first : len(places) - (len(begins) - number - 1)] or places[first:]
        if not allowed:
            break
        share = begin / len(source) * len(text)
        slack = _SLACK * len(text) if _PAUSE.search(source[:begin]) else 0.0
        cuts.append(min(allowed, key=lambda at: abs(at - share) - (slack if _PAUSE.search(text[:at]) else 0.0)))
    pieces = [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return pieces + pieces[-1:] * (len(begins) + 1 - len(pieces))


def _cuts(text: str) -> list[int]:
    """Return where a text may be cut: before words or, in one without spaces, characters; in no tag and no pair."""
    inside: set[int] = set()
    begins: list[int] = []
    for match in (*ELEMENT.finditer(text), *_REFERENCE.finditer(text)):
        inside.update(range(match.start() + 1, match.end()))
        if match[0].startswith("<g"):
            begins.append(match.start())
        elif match[0] == "</g>" and begins:
            inside.update(range(begins.pop() + 1, match.end()))
    words = [match.end() for match in re.finditer(r"\s+", text)] or range(1, len(text))
    return [place for place in words if place not in inside and 0 < place < len(text)]
