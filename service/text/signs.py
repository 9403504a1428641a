"""Signs that a model reads better as a word or not at all: "&" between words, marks of keys in menus, abbreviations.

    "Bread & butter"          is read as "Bread and butter"; in the translation, "&" stands for that "und"
    "Save &as", "_Open"       are read as "Save as", "Open"; the mark stands before a letter of the translation
    "ca. 5 Std."              is read as "etwa 5 Stunden", and translated so

Pure; knows no model.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.records import Span
from service.text.alignment import Anchor, Move, mover

_AND = {"en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "nl": "en", "pt": "e", "sv": "och", "da": "og"}
_BETWEEN = re.compile(r"(?<=[\w%)\"'”“’.!?…*])[ \u00a0](&&?)[ \u00a0](?=[\w(\"'“„‘$€£*])")
_SINGLE_LETTERS = re.compile(r"(?<!\w)[A-Z][ \u00a0]&&?[ \u00a0][A-Z](?!\w)")  # R & D

# Abbreviations that small models lose or leave as they are.  Behind some a number stands, before others.
_FULL = {
    language: dict(pair.split(": ") for pair in pairs.split("; "))
    for language, pairs in {
        "de": "ca: etwa; rd: rund; z.b: zum Beispiel; i.d.r: in der Regel; v.a: vor allem; z.t: zum Teil"
        "; ggf: eventuell; evtl: eventuell; mind: mindestens; max: maximal; inkl: inklusive; zzgl: zuzüglich"
        "; mio: Millionen; mrd: Milliarden; abb: Abbildung; kap: Kapitel; abs: Absatz; s: Seite"
        "; std: Stunden; min: Minuten; sek: Sekunden; stk: Stück; jh: Jahrhundert",
        "en": "approx: approximately; e.g: for example; i.e: that is; esp: especially; sec: section; ch: chapter"
        "; p: page; pp: pages",
    }.items()
}
_BEFORE_NUMBERS = "abb", "kap", "abs", "s", "mind", "max", "sec", "ch", "p", "pp"
_BEHIND_NUMBERS = "std", "min", "sek", "stk", "jh"


def _short(word: str) -> str:
    """Return what finds an abbreviation."""
    begins = r"(?<=[\d.][ \u00a0])" if word in _BEHIND_NUMBERS else r"(?<![^ \u00a0(])"
    ends = r"(?=[ \u00a0]?\d)" if word in _BEFORE_NUMBERS else r"(?=[ \u00a0,;)])"
    return begins + word.replace(".", r"\.[ \u00a0]?") + r"\." + ends


_SHORT = {language: re.compile("|".join(map(_short, words)), re.IGNORECASE) for language, words in _FULL.items()}

_MOST_WORDS = 8  # of what stands in a menu or on a button
_SENTENCES = re.compile(r"(?<![.])[.!?](?=\s)")
_MARK = re.compile(
    r"(?<![\w&])&(?=[^\W_])(?!\w++[;=])"  # &File
    r"|(?<=[^\W\d_])&(?=[^\W\d_])"  # St&art
    r"|(?<![\w_])_(?=[^\W\d_][^\W_]*+(?![\w(.\[]))"  # _Open
)
_HALVES = re.compile(r"([^\W\d_]++)&([^\W\d_]++)(?![\w&])")
_SHORT_HALF = 2  # letters: "E&xit", "Form&at", but not "rock&roll"
_FEWEST_LETTERS = 4
_EMPHASIS = re.compile(r"\w_(?!\w)")
_WORD = re.compile(r"[^\W_]++(?:[-'’][^\W_]++)*+")
_LETTER = re.compile(r"[^\W\d_]")


class _Mark(NamedTuple):
    """The mark of a key."""

    sign: str
    letter: str  # behind it, in lower case
    share: float  # of the words that come before; inside a word, of the characters
    is_inside: bool  # of a word: "Cl&ose"


class Read(NamedTuple):
    """A text without its signs, and how they come back."""

    text: str
    spans: dict[Span, Span]  # in the text with signs -> in `text`: what comes back as it is
    move: Move  # from `text` to the text with signs
    ands: tuple[tuple[int, str], ...]  # which of the words for "and" in `text` is a sign, from 0, and the sign
    num_ands: int
    marks: tuple[_Mark, ...]
    source_and: str
    target_and: str

    def written(self, target: str) -> tuple[str, Move] | None:
        """Return a translation with the signs, and where its parts are now; None: there is no place for one."""
        kept = [self.text[slice(*span)] for span in self.spans.values()]
        taken = {
            place for text in kept for match in re.finditer(re.escape(text), target) for place in range(*match.span())
        }
        ands = self._ands(target, taken)
        if ands is None:
            return None
        taken.update(place for span, _ in ands for place in range(*span))
        marks = _marked(target, self.marks, taken) if self.marks else {}
        if marks is None:
            return None
        edits = sorted([*ands, *((Span(place, place + 1), sign + target[place]) for place, sign in marks.items())])
        return _edited(target, edits)

    def _ands(self, target: str, taken: set[int]) -> list[tuple[Span, str]] | None:
        """Return which words for "and" become signs; None: the translation has too few."""
        if not self.ands:
            return []
        pattern = rf"(?<!\S)(?:{self.target_and}|{self.source_and})(?!\S)"  # "Rock and Roll" is German, too
        found = [Span(*match.span()) for match in re.finditer(pattern, target) if match.start() not in taken]
        if len(found) < self.num_ands:
            return None
        return [(found[number * len(found) // self.num_ands], sign) for number, sign in self.ands]


def key_marks(text: str) -> list[int]:
    """Return where a text that may stand in a menu or on a button has a mark of a key."""
    if ("&" not in text and "_" not in text) or len(text.split()) > _MOST_WORDS or _SENTENCES.search(text):
        return []
    return [match.start() for match in _MARK.finditer(text) if _is_mark(text, match.start())]


def read(text: str, spans: Sequence[Span], source_language: str, target_language: str) -> Read | None:
    """Return a text as a model reads it best; None if it has none of these signs outside of its spans."""
    full = list(_full(text, spans, source_language)) if "." in text[:-1] else []
    if not full and "&" not in text and "_" not in text:
        return None
    wide = [span for span in spans if span.end - span.begin > 2]
    taken = {place for span in wide for place in range(*span)}
    words = [_AND.get(language.partition("-")[0].lower(), "") for language in (source_language, target_language)]
    edits = [(Span(place, place + 1), "") for place in key_marks(text) if place not in taken]
    marks = [_mark(text, edit.begin) for edit, _ in edits]
    signs = list(_between(text, taken)) if all(words) else []
    if not (edits or signs or full):
        return None
    edits = sorted([*edits, *full, *((sign, words[0]) for sign in signs)])
    without, move = _edited(text, edits)
    gone = {place for edit, _ in edits for place in range(*edit)}
    all_ands = [match.start() for match in re.finditer(rf"(?<!\S){words[0]}(?!\S)", without)] if signs else []
    ours = [(all_ands.index(move(sign).begin), text[slice(*sign)]) for sign in signs]
    return Read(
        text=without,
        spans={span: move(span) for span in spans if gone.isdisjoint(range(*span))},
        move=mover([Anchor(after, before) for before, after in _anchors(edits)]),
        ands=tuple(ours),
        num_ands=len(all_ands),
        marks=tuple(marks),
        source_and=words[0],
        target_and=words[1],
    )


def _full(text: str, spans: Sequence[Span], language: str) -> Iterator[tuple[Span, str]]:
    """Yield abbreviations, and what they stand for."""
    language = language.partition("-")[0].lower()
    for match in _SHORT[language].finditer(text) if language in _SHORT else ():
        if not any(begin < match.end() and match.start() < end for begin, end in spans):
            word = _FULL[language]["".join(match[0].split())[:-1].lower()]
            yield Span(*match.span()), word[0].upper() + word[1:] if match[0][0].isupper() else word


def _between(text: str, taken: set[int]) -> Iterator[Span]:
    letters = {place for match in _SINGLE_LETTERS.finditer(text) for place in range(*match.span())}
    for match in _BETWEEN.finditer(text):
        if match.start(1) not in taken and match.start(1) not in letters:
            yield Span(*match.span(1))


def _is_mark(text: str, place: int) -> bool:
    if text[place] == "_":
        return (text[0].isupper() or text[place + 1].isupper()) and not _EMPHASIS.search(text)
    if not text[place - 1 : place].isalpha():
        return True
    begin = next((at + 1 for at in range(place - 1, -1, -1) if not text[at].isalpha()), 0)
    halves = _HALVES.match(text, begin)
    if halves is None or not halves[2].islower():
        return False
    lengths = [len(half) for half in halves.groups()]
    return min(lengths) <= _SHORT_HALF and sum(lengths) >= _FEWEST_LETTERS


def _mark(text: str, place: int) -> _Mark:
    begins = [match.start() for match in _WORD.finditer(text)]
    is_inside = text[:place][-1:].isalpha()
    share = place / (len(text) - 1) if is_inside else (bisect_right(begins, place + 1) - 1) / max(1, len(begins))
    return _Mark(text[place], text[place + 1].lower(), share, is_inside)


def _marked(target: str, marks: Sequence[_Mark], taken: set[int]) -> dict[int, str] | None:
    """Return the letters that the marks go before: the same one at the beginning of a word, else that of its word.

    The same letter inside a word does for a mark inside a word.
    """
    begins = [match.start() for match in _WORD.finditer(target) if match.start() not in taken]
    letters = [match.start() for match in _LETTER.finditer(target) if match.start() not in taken]
    found: dict[int, str] = {}
    for sign, letter, share, is_inside in marks:
        free = [place for place in begins if place not in found] or [place for place in letters if place not in found]
        if not free:
            return None
        same = [place for place in letters if place not in found and target[place].lower() == letter]
        if is_inside and same:
            found[min((abs(place - share * len(target)), place) for place in same)[1]] = sign
            continue
        number = min(round(share * len(begins)), len(free) - 1)
        same = [place for place in free if target[place].lower() == letter]
        found[same[0] if same else free[number]] = sign
    return found


def _anchors(edits: Sequence[tuple[Span, str]]) -> list[Anchor]:
    anchors, shift = list[Anchor](), 0
    for edit, written in edits:
        begin = edit.begin + shift
        anchors.append(Anchor(edit, Span(begin, begin + len(written))))
        shift += len(written) - (edit.end - edit.begin)
    return anchors


def _edited(text: str, edits: Sequence[tuple[Span, str]]) -> tuple[str, Move]:
    """Return a text with other ones in the place of parts of it, in order, and where its parts are then."""
    pieces, end = list[str](), 0
    for edit, written in edits:
        pieces += text[end : edit.begin], written
        end = edit.end
    return "".join((*pieces, text[end:])), mover(_anchors(edits))
