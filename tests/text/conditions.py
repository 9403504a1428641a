"""What must hold of every translation, whatever the model says.

Each function takes a case and its translation and yields what is wrong, in words; nothing where all is well.  They
share no code with service/text: what is protected is listed in the cases by hand, the rest follows from the text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape

from service.records import Span, TextFormat, Translation
from tests.text.corpus import Case
from tests.text.markup_conditions import MARKUP, MARKUP_CONDITIONS, language_of

UNKNOWN_MARK = "\u2047"  # how SentencePiece writes a token that it does not have
WARN_FROM_WORDS = 3  # in lower case: names and titles may be their own translation

_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_RUN_WITH_BREAK = re.compile(rf"\s*[{_BREAKS}]\s*")
_BULLET = re.compile(r"\s*(?:[-*+•◦▪‣\u2013\u2014]|\(?(?:\d+(?:\.\d+)*|[a-z]|[ivx]+)[.)])(?=\s)")
_PUNCTUATION = ".,!?;:'\"()\0"  # the last one: where something was that is no language
_BULLETS = re.compile(rf"(?m)^{_BULLET.pattern}")
_WORD = re.compile(r"(?<![^\W\d_])[A-Za-zÄÖÜäöüß]{2,}(?![^\W\d_])")  # of letters that every model here has

_ESCAPED_QUOTE = re.compile(r"\\(?=[\"'])")  # a translation may have other quotes

Condition = Callable[[Case, Translation], Iterator[str]]


def has_an_answer(case: Case, answer: Translation) -> Iterator[str]:
    """The text has a translation and no error."""
    if answer.error is not None:
        yield f"the text failed: {answer.error}"
    elif not answer.hypotheses:
        yield "the text has no hypothesis"


def keeps_spans(case: Case, answer: Translation) -> Iterator[str]:
    """Each protected span comes back as often as it is in the text; "€" may come back for "&#8364;"."""
    texts = _shown(case, case.text), _shown(case, answer.text)
    for span in case.keeps:
        was, now = (text.count(_shown(case, span)) for text in texts)
        if was != now:
            yield f"{span!r} is {was} times in the text and {now} times in the translation"


def keeps_white_space(case: Case, answer: Translation) -> Iterator[str]:
    """Space at both ends, and each run of white space with a line break in it, come back in order."""
    if case.format is not TextFormat.PLAIN:
        return  # lines mean nothing there; what stands between segments is compared byte by byte
    was, now = skeleton(case.text), skeleton(_without_gaps(case, answer))
    if was != now:
        yield f"white space {was} became {now}"


def _without_gaps(case: Case, answer: Translation) -> str:
    """Return the translation with its source in place of each segment that nothing came of."""
    said = answer.text
    for segment in reversed(answer.segments):
        if not said[segment.target.begin : segment.target.end].strip():
            source = case.text[segment.source.begin : segment.source.end]
            said = f"{said[: segment.target.begin]}{source}{said[segment.target.end :]}"
    return said


def skeleton(text: str) -> list[str]:
    """Return leading space, the runs of white space with a line break, and trailing space."""
    stripped = text.strip()
    begin = text.index(stripped) if stripped else len(text)
    inside = _RUN_WITH_BREAK.findall(stripped)
    return [text[:begin], *inside, text[begin + len(stripped) :]]


def keeps_bullets(case: Case, answer: Translation) -> Iterator[str]:
    """Each line with a bullet or a number before it still has that."""
    if case.format is not TextFormat.PLAIN:
        return
    for was, now in zip(case.text.split("\n"), answer.text.split("\n"), strict=False):
        found = _BULLET.match(was)
        if found and not now.startswith(found.group()):
            yield f"the line {was!r} became {now!r}"


def shows_no_unknown_mark(case: Case, answer: Translation) -> Iterator[str]:
    """No hypothesis, of the text or of a segment, has the tokenizer's mark for unknown characters."""
    allowed = _shown(case, case.text).count(UNKNOWN_MARK)
    hypotheses = [*answer.hypotheses, *(one for segment in answer.segments for one in segment.hypotheses)]
    for hypothesis in hypotheses:
        if hypothesis.text.count(UNKNOWN_MARK) > allowed:
            yield f"the tokenizer's unknown mark is in {hypothesis.text!r}"


def keeps_what_is_outside_segments(case: Case, answer: Translation) -> Iterator[str]:
    """Segments are in order, apart and inside; between them the translation is the text, byte by byte."""
    sources = [segment.source for segment in answer.segments]
    targets = [segment.target for segment in answer.segments]
    for name, spans, text in (("source", sources, case.text), ("target", targets, answer.text)):
        flat = [0, *(place for span in spans for place in span), len(text)]
        if flat != sorted(flat):
            yield f"{name} spans {spans} are not in order in a text of {len(text)} characters"
            return
    was, now = between(case.text, sources), between(answer.text, targets)
    if was != now:
        yield f"between the segments, {was} became {now}"


def between(text: str, spans: list[Span]) -> list[str]:
    """Return what stands before, between and after the spans."""
    ends = [0, *(span.end for span in spans)]
    begins = [*(span.begin for span in spans), len(text)]
    return [text[end:begin] for end, begin in zip(ends, begins, strict=True)]


def slices_are_the_segments(case: Case, answer: Translation) -> Iterator[str]:
    """The translation has, at each segment's place, that segment's best hypothesis."""
    for segment in answer.segments:
        part = answer.text[segment.target.begin : segment.target.end]
        if not segment.hypotheses or segment.hypotheses[0].text != part:
            yield f"at {segment.target} stands {part!r}, the segment says {segment.hypotheses[:1]}"


def has_the_segments(case: Case, answer: Translation) -> Iterator[str]:
    """Segments are not empty, there are as many as the case has sentences, and every word of the text is in one."""
    for segment in answer.segments:
        if not case.text[segment.source.begin : segment.source.end].strip():
            yield f"the segment at {segment.source} is blank"
    if case.sentences is not None and len(answer.segments) != case.sentences:
        parts = [case.text[segment.source.begin : segment.source.end] for segment in answer.segments]
        yield f"{case.sentences} sentences became {len(parts)} segments: {parts}"
    covered = {place for segment in answer.segments for place in range(*segment.source)}
    outside = [word for word, begin, end in words_to_translate(case) if not covered.issuperset(range(begin, end))]
    if outside:
        yield f"the words {outside} are in no segment"


def words_to_translate(case: Case) -> Iterator[tuple[str, int, int]]:
    """Yield each word that is language, with its place: no markup, no protected span, no bullet, no sign beside it."""
    if case.is_broken:
        return
    if case.format is TextFormat.PLAIN:
        text = _BULLETS.sub(lambda found: "\0" * len(found.group()), case.text)
    else:
        text = language_of(case.text)
    for span in sorted(case.keeps, key=len, reverse=True):
        text = text.replace(span, "\0" * len(span))
    for found in _WORD.finditer(text):
        beside = text[: found.start()][-1:] + text[found.end() : found.end() + 1]
        if all(character.isspace() or character in _PUNCTUATION for character in beside):
            yield found.group(), *found.span()


def warns_of_copies(case: Case, answer: Translation) -> Iterator[str]:
    """A segment that is its source, or empty, has a warning."""
    words = list(words_to_translate(case))
    for segment in answer.segments:
        source = case.text[segment.source.begin : segment.source.end]
        target = answer.text[segment.target.begin : segment.target.end]
        inside = [word for word, begin, end in words if segment.source.begin <= begin and end <= segment.source.end]
        is_silent = not segment.warnings
        if is_silent and inside and not target.strip():
            yield f"nothing came of {source!r}, without a warning"
        is_text = len(MARKUP.sub("", source).split()) >= WARN_FROM_WORDS
        if is_silent and is_text and sum(map(str.islower, inside)) >= WARN_FROM_WORDS and source == target:
            yield f"{source!r} was not translated, without a warning"


CONDITIONS: tuple[Condition, ...] = (
    keeps_spans,
    keeps_white_space,
    keeps_bullets,
    shows_no_unknown_mark,
    keeps_what_is_outside_segments,
    slices_are_the_segments,
    has_the_segments,
    warns_of_copies,
    *MARKUP_CONDITIONS,
)


def broken_conditions(case: Case, answer: Translation) -> list[str]:
    """Return what is wrong with the translation of a case; empty where every condition holds."""
    if problems := list(has_an_answer(case, answer)):
        return problems
    return [problem for condition in CONDITIONS for problem in condition(case, answer)]


def lost_characters(case: Case, answer: Translation, is_known: Callable[[str], bool]) -> list[str]:
    """Return the characters unknown to the model that did not come back, or too often; in Unicode's composed form."""
    texts = (_ESCAPED_QUOTE.sub("", _shown(case, text)) for text in (case.text, answer.text))
    was, now = (Counter(unicodedata.normalize("NFC", text)) for text in texts)
    counts = ((character, was[character], now[character]) for character in was | now)
    return [f"{one!r}: {old} -> {new}" for one, old, new in counts if old != new and not is_known(one)]


def _shown(case: Case, text: str) -> str:
    return text if case.format is TextFormat.PLAIN else unescape(text)
