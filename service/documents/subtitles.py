"""SRT and WebVTT: cues keep numbers, times, settings, notes, styles and, as far as it fits, the number of their lines.

A sentence that runs over several cues is translated as one and cut again.  Of a cue, or of one speaker in it, the words
are translated; what frames them stays.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import unescape
from itertools import pairwise
from typing import NamedTuple

from service.documents.draft import Answer, Draft, Lines, Passage, Slot, Unit, draft_of_passages, has_language
from service.documents.inline_tags import (
    ELEMENT,
    Item,
    Mark,
    decode_parts,
    encode,
    escaped,
    merged,
    with_html_pairs,
)
from service.records import Link, TextFormat, TranslatedSegment, Translation
from service.text.boundaries import STARTERS
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
    text: CueText
    starts_s: float  # of the cue
    ends_s: float
    begins_anew: bool  # with a new speaker, or as an item of a list
    line_end: str  # between its lines

    @property
    def words(self) -> str:
        return "".join(item for item in self.text.items if isinstance(item, str))

    @property
    def is_alone(self) -> bool:
        """Whether it belongs to no sentence: a sound, or a line of a song."""
        return bool(_SOUND.match(self.words)) or "♪" in self.text.before + self.text.after

    def goes_on_in(self, other: "_Text") -> bool:
        """Whether the next text may continue its sentence."""
        has_ended = _SENTENCE_END.search(self.words) and not other.words[:1].islower()
        return not (
            has_ended
            or other.begins_anew
            or self.is_alone
            or other.is_alone
            or self.text.style != other.text.style
            or other.starts_s - self.ends_s > MAX_PAUSE_S
        )


def read(text: str, *, has_references: bool) -> Draft:
    """Return the draft of an SRT file, or of a WebVTT file, which has references ("&amp;").

    Raises:
        ValueError: there is no cue in it.
    """
    if not _TIMING.search(text) and has_language(text.replace("WEBVTT", "", 1)):
        raise ValueError("there is no cue in the file: no line like 00:00:01,000 --> 00:00:02,000")
    lines, line_end = Lines(text), _LINE_END.search(text)
    passages: list[Passage] = []
    for group in _groups([one for one in _texts(text, has_references) if has_language(one.words)]):
        unit = Unit(encode(_items_of(group)), TextFormat.XLIFF, lines.number(group[0].begin))
        passages.append(Passage((unit,), partial(_slots, group, line_end[0] if line_end else "\n")))
    return draft_of_passages(text, passages, wants_links=True)


def _items_of(group: list[_Text]) -> list[Item]:
    return in_one(text.text.items for text in group)


def _slots(group: list[_Text], line_end: str, answers: Sequence[Answer]) -> Iterator[Slot]:
    items = _items_of(group)
    begins = [len(encode(_items_of(group[:number]))) + 1 for number in range(1, len(group))]
    pieces = _cut(encode(items), begins, answers[0].translation)
    for text, part in zip(group, decode_parts(pieces, items), strict=True):
        written = text.text.written(part).replace("\n", text.line_end or line_end)
        yield Slot(text.begin, text.end, written)


def _texts(source: str, has_references: bool) -> Iterator[_Text]:
    timings = list(_TIMING.finditer(source))
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
            text = "\n".join(source[slice(*line)] for line in lines)
            begins_anew = is_item or bool(_NEW_SPEAKER.match(text))
            cue_text = read_cue_text(text, has_references=has_references)
            line_end = source[lines[0][1] : lines[1][0]] if len(lines) > 1 else ""
            yield _Text(lines[0][0], lines[-1][1], cue_text, starts_s, ends_s, begins_anew, line_end)


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


_PER_LINK = 10.0  # characters that a cut may be off to cross one link less
_SLACK = 0.1  # share of the text that a cut may be off to stand behind punctuation as it does in the source
_PAUSE = re.compile(r"[,;:.!?…\u2014\u2013-]\s*\Z")
_REFERENCE = re.compile(r"&[#\w]+;")


def _cut(source: str, begins: Sequence[int], translation: Translation) -> list[str]:
    """Return a translation, in XLIFF, in as many pieces as its source; the last again where there are too few words.

    A cut of the source that lies between two segments is one between their translations.  Inside a segment, it goes
    where few links between words cross it, and near the same share of the length.

    Args:
        source: what was translated.
        begins: where in it the second piece and those after it begin.
    """
    text = translation.text
    places = _cuts(text)
    cuts: list[int] = []
    first = 0
    for number, begin in enumerate(begins):
        allowed = places[first : len(places) - (len(begins) - number - 1)] or places[first:]
        if not allowed:
            break
        cuts.append(_best(allowed, text, source, begin, translation))
        first = bisect_left(places, cuts[-1]) + 1
    pieces = [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return pieces + pieces[-1:] * (len(begins) + 1 - len(pieces))


def _cuts(text: str) -> list[int]:
    """Return where a text may be cut: before words or, in one without spaces, characters; in no tag and no pair."""
    fixed = [match.span() for match in (*ELEMENT.finditer(text), *_REFERENCE.finditer(text))]
    inside = {place for begin, end in fixed for place in range(begin + 1, end)} | _inside_pairs(text)
    words = [match.end() for match in re.finditer(r"\s+", text)]
    if not words:
        words = list(range(1, len(text)))
    return [place for place in words if place not in inside and 0 < place < len(text)]


def _inside_pairs(text: str) -> set[int]:
    inside: set[int] = set()
    begins: list[int] = []
    for match in ELEMENT.finditer(text):
        if match["open"]:
            begins.append(match.start())
        elif match["close"] and begins:
            inside.update(range(begins.pop() + 1, match.end()))
    return inside


def _best(places: Sequence[int], text: str, source: str, begin: int, translation: Translation) -> int:
    share = begin / max(len(source), 1) * len(text)
    links: tuple[Link, ...] = ()
    for segment in translation.segments:
        if segment.source.end <= begin:
            share = float(segment.target.end)
            links = ()
        elif segment.source.begin < begin:
            share = _share(segment, begin)
            links = segment.links
            break

    slack = _SLACK * len(text) if _PAUSE.search(source[:begin]) else 0.0

    def cost(place: int) -> float:
        crossing = sum((link.source.begin < begin) != (link.target.begin < place) for link in links)
        return _PER_LINK * crossing + abs(place - share) - (slack if _PAUSE.search(text[:place]) else 0.0)

    return min(places, key=cost)


def _share(segment: TranslatedSegment, begin: int) -> float:
    source, target = segment.source, segment.target
    return target.begin + (begin - source.begin) / (source.end - source.begin) * (target.end - target.begin)
