"""SRT and WebVTT: cues keep numbers, times, settings, notes, styles and, as far as it fits, the number of their lines.

A sentence that runs over several cues is translated as one and cut again.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.documents.cue_text import CueText, in_one, read_cue_text
from service.documents.draft import Draft, Notice, Slot, Unit, Written, filled, has_language, line_of, text_of
from service.documents.inline_tags import TagsLost, decode_parts, encode
from service.documents.sentence_cut import cut
from service.records import TextFormat, Translation, WarningKind
from service.text.abbreviations import STARTERS

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
    texts = [one for one in _texts(text, has_references) if has_language(one.words)]
    file = _File(text, list(_groups(texts)))
    return Draft(tuple(map(file.unit, file.groups)), file.write, wants_links=True)


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


class _File(NamedTuple):
    """A file and its texts."""

    text: str
    groups: list[list[_Text]]

    def unit(self, group: list[_Text]) -> Unit:
        """Return the unit of texts that are translated as one."""
        source = encode(in_one(text.text.items for text in group))
        return Unit(source, TextFormat.XLIFF, line_of(self.text, group[0].begin))

    def write(self, translations: Sequence[Translation]) -> Written:
        """Return the file with these translations of its groups."""
        slots: list[Slot] = []
        notices: list[Notice] = []
        for group, translation in zip(self.groups, translations, strict=True):
            unit = self.unit(group)
            if text_of(unit, translation) == unit.text:
                continue
            try:
                slots += self._slots(group, translation)
            except TagsLost:
                notices.append(Notice(WarningKind.NOT_TRANSLATED, unit.line))
        return Written(filled(self.text, slots), tuple(notices))

    def _slots(self, group: list[_Text], translation: Translation) -> Iterator[Slot]:
        runs = [text.text.items for text in group]
        begins = [len(encode(in_one(runs[:number]))) + 1 for number in range(1, len(runs))]
        items = in_one(runs)
        pieces = cut(encode(items), begins, translation)
        line_end = _LINE_END.search(self.text)
        for text, part in zip(group, decode_parts(pieces, items), strict=True):
            between = text.line_end or (line_end[0] if line_end else "\n")
            written = text.text.written(part).replace("\n", between)
            yield Slot(text.begin, text.end, written)
