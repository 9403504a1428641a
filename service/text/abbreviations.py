"""Signs and short forms that models read badly: a text goes without them, and its translation gets the signs again.

    "Bread & butter"                goes as "Bread and butter"; "&" stands for that "und" again
    "Save &as", "_Open" in menus    go as "Save as", "Open"; the mark stands before a letter again
    "ca. 5 Std.", "20,- €"          go as "etwa 5 Stunden", "20 €", and are translated so

What is a span stays.  In linear time; knows no model.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.records import Span
from service.text.alignment import Edited, Move, edited
from service.text.languages import primary
from service.text.span_patterns import key_marks

_AND = {"en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "nl": "en", "pt": "e", "sv": "och", "da": "og"}
_BETWEEN = re.compile(  # but not "R & D"
    r"(?<=[\w%)\"'”“’.!?…*])[ \u00a0](?!(?<=(?<!\w)[A-Z][ \u00a0])&&?[ \u00a0][A-Z](?!\w))(&&?)[ \u00a0]"
    r"(?=[\w(\"'“„‘$€£*])"
)

# Abbreviations that small models lose or leave as they are.  Behind some a number stands, before others.
_FULL = {
    language: dict(pair.split(": ") for pair in pairs.split("; "))
    for language, pairs in {
        "de": "ca: etwa; rd: rund; z.b: zum Beispiel; i.d.r: in der Regel; v.a: vor allem; z.t: zum Teil"
        "; ggf: eventuell; evtl: eventuell; mind: mindestens; max: maximal; inkl: inklusive; zzgl: zuzüglich"
        "; mio: Millionen; mrd: Milliarden; abb: Abbildung; kap: Kapitel; s: Seite"
        "; std: Stunden; min: Minuten; sek: Sekunden; stk: Stück; jh: Jahrhundert; pers: Personen; bd: Band; gr: Größe"
        "; d.h: das heißt; u.a: unter anderem; i.h.v: in Höhe von; m.e: meines Erachtens; u.u: unter Umständen"
        "; z.zt: zurzeit; vgl: vergleiche; bspw: beispielsweise; bzgl: bezüglich; lt: laut; gem: gemäß; jew: jeweils"
        "; tägl: täglich; tgl: täglich; mtl: monatlich; jährl: jährlich",
        "en": "approx: approximately; e.g: for example; i.e: that is; esp: especially; incl: including; cf: compare"
        "; sec: section; ch: chapter; p: page; pp: pages; doz: dozen",
    }.items()
}
_BEFORE_NUMBERS = "abb", "kap", "s", "bd", "gr", "mind", "max", "sec", "ch", "p", "pp"
_BEHIND_NUMBERS = "std", "min", "sek", "stk", "jh", "pers", "doz"


def _short(words: Iterable[str], ends: str) -> str:
    """Return what finds abbreviations."""
    return "|".join([word.replace(".", r"\.[ \u00a0]?") + rf"\.{ends}" for word in words])


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the abbreviations of a language, fast where there is none."""
    before, behind = set(_BEFORE_NUMBERS).intersection(words), set(_BEHIND_NUMBERS).intersection(words)
    ends = r"(?=[ \u00a0,;)])"
    others = _short({*words} - before - behind, ends)
    numbered = _short(before, r"(?=[ \u00a0]?\d)")
    return re.compile(
        rf"(?<![^ \u00a0(])(?<!Abs\. \d )(?-i:(?!P))(?:{others}|{numbered})"
        rf"|(?<=[\d.][ \u00a0])(?:{_short(behind, ends)})",
        re.IGNORECASE,
    )


_SHORT = {language: _pattern(words) for language, words in _FULL.items()}
_NO_CENTS = re.compile(r"(?<=\d),[-–—]{1,2}(?!\w)")

_WORD_OF_MENU = re.compile(r"[^\W_]++(?:[-'’][^\W_]++)*+")


class _Mark(NamedTuple):
    """The mark of a key."""

    sign: str
    letter: str  # behind it, in lower case
    share: float  # of the words that come before


class Read(NamedTuple):
    """A text without its signs, and how they come back."""

    text: str
    origin: Move  # from `text` to the text with signs
    spans: dict[Span, Span]  # in the text with signs -> in `text`: what comes back as it is
    signs: tuple[tuple[int, str], ...]  # which of the words for "and" in `text` is a sign, from 0, and the sign
    num_ands: int
    marks: tuple[_Mark, ...]
    ands: tuple[str, str]  # the words of both languages

    def written(self, target: str) -> Edited | None:
        """Return a translation with the signs; None: there is no place for one."""
        kept = [re.escape(self.text[slice(*span)]) for span in self.spans.values()]
        taken = {place for text in kept for match in re.finditer(text, target) for place in range(*match.span())}
        edits = list[tuple[Span, str]]()
        if self.signs:
            pattern = rf"(?<!\S)(?:{'|'.join(reversed(self.ands))})(?!\S)"  # "Rock and Roll" is German, too
            found = [Span(*match.span()) for match in re.finditer(pattern, target) if match.start() not in taken]
            if len(found) < self.num_ands:
                return None
            edits = [(found[number * len(found) // self.num_ands], sign) for number, sign in self.signs]
            taken.update(place for span, _ in edits for place in range(*span))
        marks = _marked(target, self.marks, taken)
        if marks is None:
            return None
        edits += [(Span(place, place + 1), sign + target[place]) for place, sign in marks.items()]
        return edited(target, sorted(edits))


def read(text: str, spans: Sequence[Span], source_language: str, target_language: str) -> Read | None:
    """Return a text as a model reads it best; None if it has none of these signs outside of its spans."""
    may_be_short = "." in text[:-1] or ",-" in text or ",–" in text
    full = _full(text, spans, primary(source_language)) if may_be_short else []
    if not full and "&" not in text and "_" not in text:
        return None
    taken = {place for span in spans if span.end - span.begin > 2 for place in range(*span)}
    ands = _AND.get(primary(source_language), ""), _AND.get(primary(target_language), "")
    places = [place for place in key_marks(text) if place not in taken]
    signs = [Span(*match.span(1)) for match in _BETWEEN.finditer(text) if all(ands) and match.start(1) not in taken]
    if not (places or signs or full):
        return None
    edits = [*((Span(place, place + 1), "") for place in places), *full, *((sign, ands[0]) for sign in signs)]
    without = edited(text, sorted(edits))
    gone = {place for edit, _ in edits for place in range(*edit)}
    all_ands = [match.start() for match in re.finditer(rf"(?<!\S){ands[0]}(?!\S)", without.text)] if signs else []
    return Read(
        text=without.text,
        origin=without.origin,
        spans={span: without.moved(span) for span in spans if gone.isdisjoint(range(*span))},
        signs=tuple([(all_ands.index(without.moved(sign).begin), text[slice(*sign)]) for sign in signs]),
        num_ands=len(all_ands),
        marks=tuple(
            [_Mark(text[one], text[one + 1].lower(), len(text[:one].split()) / len(text.split())) for one in places]
        ),
        ands=ands,
    )


def _full(text: str, spans: Sequence[Span], language: str) -> list[tuple[Span, str]]:
    """Return abbreviations and dashes in German prices, and what they stand for."""
    found = [(match, "") for match in _NO_CENTS.finditer(text)] if language == "de" else []
    for match in _SHORT[language].finditer(text) if language in _SHORT else ():
        word = _FULL[language]["".join(match[0].split())[:-1].lower()]
        found.append((match, word[0].upper() + word[1:] if match[0][0].isupper() else word))
    return [
        (Span(*match.span()), word)
        for match, word in found
        if not any(begin < match.end() and match.start() < end for begin, end in spans)
    ]


def _marked(target: str, marks: Sequence[_Mark], taken: set[int]) -> dict[int, str] | None:
    """Return the letters that the marks go before: the same one at the beginning of a word, else that of its word."""
    free = [match.start() for match in _WORD_OF_MENU.finditer(target) if match.start() not in taken]
    found: dict[int, str] = {}
    for sign, letter, share in marks:
        if not free:
            return None
        same = [place for place in free if target[place].lower() == letter]
        place = same[0] if same else free[min(round(share * len(free)), len(free) - 1)]
        found[place] = sign
        free.remove(place)
    return found
