"""Languages: what their tags mean, which scripts they are written in, and which one a text is in.

Tags are BCP 47, or as "eng_Latn".  One table has the letters of each script; which script a language is written in says
Unicode's CLDR (`model.language_codes`).

The script tells the language of a text where only one of the languages asked about is written in it; else py3langid
does, by the sequences of bytes in the text (Lui and Baldwin 2012).  What is no language (numbers, URLs, placeholders,
tags) is left out first.  The model takes half a second to load, and 80 MB of memory for as long as the process lives.
"""

import io
import lzma
import math
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from model.language_codes import Subtags, subtags_of
from service.records import DetectedLanguage

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Letters of a script; ranges may include marks, signs and unassigned code points between them.
_RANGES = {
    "Latn": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\ufb00-\ufb06"
    "\uff21-\uff5a",
    "Grek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrl": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Armn": "\u0531-\u058f\ufb13-\ufb17",
    "Hebr": "\u0590-\u05ff\ufb1d-\ufb4f",
    "Arab": "\u0620-\u065f\u066e-\u06d5\u06e5-\u06ef\u06fa-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Thaa": "\u0780-\u07bf",
    "Ethi": "\u1200-\u139f\u2d80-\u2ddf",
    "Deva": "\u0900-\u0963\u0971-\u097f\ua8e0-\ua8ff",
    "Beng": "\u0980-\u09ff",
    "Guru": "\u0a00-\u0a7f",
    "Gujr": "\u0a80-\u0aff",
    "Orya": "\u0b00-\u0b7f",
    "Taml": "\u0b80-\u0bff",
    "Telu": "\u0c00-\u0c7f",
    "Knda": "\u0c80-\u0cff",
    "Mlym": "\u0d00-\u0d7f",
    "Sinh": "\u0d80-\u0dff",
    "Thai": "\u0e01-\u0e3a\u0e40-\u0e4e",
    "Laoo": "\u0e80-\u0eff",
    "Tibt": "\u0f00-\u0fff",
    "Mymr": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "Geor": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "Khmr": "\u1780-\u17ff",
    "Hang": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "Kana": "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d",
    "Hani": "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd",
}
# Scripts of BCP 47 that are written in the letters of others.
_MIXED = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hang": ("Hang", "Hani"),
}
_IN_TWO_SCRIPTS = {"sr": ("Cyrl", "Latn"), "ku": ("Arab", "Latn")}  # as long as the tag names none
_DENSE = frozenset({"Hani", "Hang", "Kana"})
# Letters of scripts without spaces between words, for a class of a regular expression.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
IDEOGRAPHS = _RANGES["Hani"] + _RANGES["Kana"]
_LETTERS = {script: re.compile(f"[{letters}]") for script, letters in _RANGES.items()}
_ANY_LETTER = re.compile(r"[^\W\d_]")


@lru_cache(1_024)  # callers choose the tags
def primary(language: str) -> str:
    """Return the language without script and region: "en" for "en-US"."""
    return language.replace("_", "-").partition("-")[0].lower()


@lru_cache(1_024)
def scripts_of(language: str) -> tuple[str, ...]:
    """Return the scripts of the letters that a language is written in; empty where that is not known."""
    tag = subtags_of(language)
    if tag is None:
        return ()
    if not tag.script and tag.language in _IN_TWO_SCRIPTS:
        return _IN_TWO_SCRIPTS[tag.language]
    script = tag.likely.script
    return _MIXED.get(script, (script,) if script in _RANGES else ())


def is_dense(language: str) -> bool:
    """Whether a character of the language is a syllable or a word."""
    return not _DENSE.isdisjoint(scripts_of(language))


@cache
def _foreign(scripts: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of letters that follow each other and are of none of the scripts."""
    return re.compile(rf"[^\W\d_{''.join(_RANGES[script] for script in scripts)}]+")


def foreign_runs(text: str, language: str) -> list[str]:
    """Return the letters of the text that are of no script of the language, those beside each other together.

    A language whose scripts are not known has none.
    """
    scripts = scripts_of(language)
    return _foreign(scripts).findall(text) if scripts else []


def letters(text: str) -> list[str]:
    """Return the letters of the text, of whatever script."""
    return _ANY_LETTER.findall(text)


class Closeness(IntEnum):
    """How close an offered language is to the one that is asked for; lower is closer."""

    EXACT = 0  # the same tag
    GENERAL = 1  # the same or less specific: "en" for "en-US", as RFC 4647 looks up
    LIKELY = 2  # the same once what is likely is filled in: "zh-Hant" for "zh-TW", "en-US" for "en"
    REGION = 3  # that of another region: "en-GB" for "en" or "en-US"
    SCRIPT = 4  # in another script, where neither script nor region is asked for: "zh-Hant" for "zh"


def closeness(asked: str, offered: str) -> Closeness | None:
    """Return how close an offered language is to the one that is asked for; None: it does not serve.

    Case does not count.  The script is never another one than the tag names or its region writes: "zh-TW" does not find
    "zh-Hans".  What is no BCP 47 tag finds only itself.
    """
    if asked.lower() == offered.lower():
        return Closeness.EXACT
    wanted, given = subtags_of(asked), subtags_of(offered)
    if wanted is None or given is None or wanted.language != given.language:
        return None
    likely_wanted, likely_given = wanted.likely, given.likely
    if likely_wanted.script != likely_given.script:
        return None if wanted.script or wanted.region else Closeness.SCRIPT
    if given.script in ("", wanted.script) and given.region in ("", wanted.region):
        return Closeness.GENERAL
    return Closeness.LIKELY if likely_wanted == likely_given else Closeness.REGION


_READ = 4_000  # code points of a text, markup included, of which ...
_JUDGED = 1_000  # ... so many say enough: 0.1 ms
# A text is plainly in another language where so many letters and words make it so probable; lists of names are taken
# for that at times (bench/quality/detection.py has the shares).
_OTHER_LETTERS, _OTHER_WORDS, _OTHER_PROBABILITY = 16, 3, 0.99
_WINDOW_WORDS, _MAX_WINDOWS = 20, 32
_NOT_LANGUAGE = re.compile(
    r"<!--(?s:.*?)(?:-->|\Z)"
    r"|<(script|style|code|pre)\b[^<>]*>(?s:.*?)(?:</\1\s*>|\Z)"
    r"|<[^<>]*>"  # tags
    r"|&#?\w{1,32};"  # entities
    r"|(?:[A-Za-z]{2,9}://|www\.)[!-~]*"  # addresses
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+"
    r"|\$?\{[^{}]{0,64}\}"  # placeholders
    r"|%(?:\(\w{0,64}\))?[sdfi]\b"
)
_NO_FEATURES = -1e30  # py3langid gives the least float32 to a text that has nothing of what it knows
# Languages that py3langid takes for each other, as it calls them: varieties of one, and neighbours whose readers
# understand each other.  Where one of a group is asked about, a text in another one of it is never plainly in another.
_ALIKE = [
    frozenset(names.split())
    for names in re.split(
        "; ",
        "ar ary arz; bg mk; bs hr sr; cs sk; da nb nn no; de lb; el grc; en pcm; es an ext; fr wa; gl pt; he hbo; id ms"
        "; it lij vec; ku sdh; lv ltg; nl af fy; uz uzs; zh wuu yue",
    )
]
_NO_WORDS = "zxx"  # py3langid's name of what is no language

NO_LANGUAGE = DetectedLanguage("", 0.0)

# From here on a text counts as written in the target language; however short it is, few are taken for that wrongly
# (bench/quality/detection.py has the shares).
_CERTAIN = 0.95

_loading = threading.Lock()


class Reading(NamedTuple):
    """What the detector finds out about the language of a text."""

    confidences: Mapping[str, float] = {}  # of the languages asked about that it can be in, the highest first
    other: DetectedLanguage | None = None  # what it is in, where that is plainly none of them; may be no language known
    is_likeliest: bool = False  # whether the first of the languages is more probable than all others that are known

    @property
    def found(self) -> DetectedLanguage:
        """The most probable of the languages asked about, if there is one."""
        for language, confidence in self.confidences.items():
            return DetectedLanguage(language, confidence)
        return NO_LANGUAGE


class Detector:
    """Detects languages; may be used from several threads at once."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._identifier: LanguageIdentifier | None = None
        self._labels: dict[str, str] = {}  # py3langid's name of a language, by ours

    @property
    def is_loaded(self) -> bool:
        """Whether the model is there."""
        return self._identifier is not None

    def load(self) -> None:
        """Load the model, which takes half a second, unless it is there; may raise anything, such as MemoryError."""
        if self._identifier is None:
            identifier = load_identifier()
            self._labels = {_code(label): label for label in identifier.labels}
            self._identifier = identifier

    def detect(self, text: str, languages: Sequence[str]) -> DetectedLanguage:
        """Return which of these languages (BCP 47) a text is in; `NO_LANGUAGE` also if it is plainly in another one.

        The confidence is the probability of the language among those, as py3langid normalises it, times the share of
        the letters that are in its script.  A language that py3langid does not know can only be told by its script.
        """
        reading = self.read(text, languages)
        return reading.found if reading.other is None else NO_LANGUAGE

    def read(self, text: str, languages: Sequence[str]) -> Reading:
        """Read the beginning of a text, with these languages (BCP 47) in mind; loads the model if it is needed."""
        words = _words_of(text[:_READ])
        return self._read(" ".join(words)[:_JUDGED], languages)

    def read_parts(self, text: str, languages: Sequence[str]) -> list[Reading]:
        """Read parts of a text from its beginning to its end; a short text has no parts."""
        words = _words_of(text)
        if len(words) <= _WINDOW_WORDS:
            return []
        places = range(0, len(words), _WINDOW_WORDS)
        chosen = places[:: math.ceil(len(places) / _MAX_WINDOWS)]
        return [self._read(" ".join(words[at : at + _WINDOW_WORDS])[:_JUDGED], languages) for at in chosen]

    def _read(self, words: str, languages: Sequence[str]) -> Reading:
        fitting, share, num_letters = _in_script(words, languages)
        is_long = num_letters >= _OTHER_LETTERS and words.count(" ") + 1 >= _OTHER_WORDS
        if num_letters < 2 and not fitting:
            return Reading()
        if len(fitting) == 1 and not is_long:
            return Reading({fitting[0]: share}, is_likeliest=True)
        weights = self._weights(words)
        if not weights:
            return Reading(dict.fromkeys(fitting, share) if len(fitting) == 1 else {})
        likeliest = max(weights, key=weights.__getitem__)
        labels = {language: label for language in fitting or languages if (label := self._labels.get(_code(language)))}
        near = frozenset[str]().union(*map(_alike, labels.values()), (_NO_WORDS,))
        others = sum(weight for label, weight in weights.items() if label not in near) / sum(weights.values())
        is_told = is_long and len(labels) == len(fitting)  # a language that py3langid does not know may be any
        if likeliest not in near and (others >= _OTHER_PROBABILITY if is_told else not fitting):
            return Reading(other=DetectedLanguage(likeliest, weights[likeliest] / sum(weights.values())))
        own = sum(weights[label] for label in labels.values()) if fitting else 0.0
        if not own:
            return Reading(dict.fromkeys(fitting, share) if len(fitting) == 1 else {})
        confidences = {language: weights[label] / own * share for language, label in labels.items()}
        confidences = dict(sorted(confidences.items(), key=lambda item: -item[1]))
        return Reading(confidences, is_likeliest=likeliest in _alike(labels[next(iter(confidences))]))

    def _weights(self, words: str) -> dict[str, float]:
        """Return how probable each language that py3langid knows is, by its label; the greatest weight is 1."""
        self.load()
        assert self._identifier is not None
        logs = dict(self._identifier.rank(words))
        greatest = max(logs.values())
        if greatest < _NO_FEATURES:
            return {}
        temperature = math.sqrt(len(words.encode(errors="replace")))  # as py3langid, to be calibrated at every length
        return {label: math.exp((log - greatest) / temperature) for label, log in logs.items()}


class Judged(NamedTuple):
    """The decision about the language of a text."""

    found: DetectedLanguage  # as its caller is told; no language where nothing was measured
    source: str = ""  # the source language that it is translated from; empty: that of the other texts
    stays: bool = False  # whether it comes back as it is: it is in the target language, or in none of those on offer


def judge(text: str, sources: Sequence[str], target: str, detector: Detector) -> Judged:
    """Decide in which language a text is, and whether it needs a translation.

    A text stays only if none of its parts is certainly in a source language.

    Args:
        sources: languages that models translate from.
        target: the language that they translate into; empty: each has its own, so that no text is in it.
        detector: it may load its model.
    """
    languages = [*sources, target] if target else sources
    reading = detector.read(text, languages)
    found = reading.found
    if reading.other is not None or (found.language == target and found.language and _is_certain(reading)):
        parts = detector.read_parts(text, languages)
        in_source = next((part.found for part in parts if part.found.language != target and _is_certain(part)), None)
        if in_source is None:
            return Judged(found if reading.other is None else reading.other, stays=True)
        return Judged(in_source, in_source.language)
    for language, confidence in reading.confidences.items():
        if language != target:
            return Judged(DetectedLanguage(language, confidence), language)
    return Judged(NO_LANGUAGE)


def _is_certain(reading: Reading) -> bool:
    return reading.other is None and reading.is_likeliest and reading.found.confidence >= _CERTAIN


def _words_of(text: str) -> list[str]:
    return _NOT_LANGUAGE.sub(" ", text).split()


def _alike(label: str) -> frozenset[str]:
    return next((group for group in _ALIKE if label in group), frozenset((label,)))


def load_identifier() -> "LanguageIdentifier":
    """Return the model, the same one each time; may raise anything, such as MemoryError.

    To unpack it takes most of the half second, and lets other threads run.
    """
    with _loading:
        return _read_identifier()


def load_ahead() -> None:
    """Load the model if that is possible; whoever needs it is told where it is not."""
    with suppress(Exception):
        load_identifier()


@cache
def _read_identifier() -> "LanguageIdentifier":
    """Return what `LanguageIdentifier.from_model_file` does, which unpacks 65 MB into a temporary file first."""
    import numpy as np  # noqa: PLC0415 - this module is imported before the first engine has started
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - likewise

    unpacked = io.BytesIO(lzma.decompress((MODEL_DIR / MODEL_FILE).read_bytes()))  # all other threads run meanwhile
    with np.load(unpacked, allow_pickle=False) as model:
        return LanguageIdentifier(
            model["ptc"],
            model["pc"],
            model["classes"].tolist(),
            memoryview(model["nextmove"]),
            model["out_feat"].tolist(),
            tk_row=memoryview(model["nextmove_row"]),
        )


@lru_cache(256)
def _code(language: str) -> str:
    return (subtags_of(language) or Subtags(language)).language


def _in_script(words: str, languages: Sequence[str]) -> tuple[list[str], float, int]:
    """Return the languages that most letters may belong to, the share of these letters, and the number of letters."""
    counts = Counter(script for letter in words if letter.isalpha() and (script := _script_of_letter(letter)))
    letters = {language: sum(counts[script] for script in scripts_of(language) or ("Latn",)) for language in languages}
    num_letters, most = counts.total(), max(letters.values(), default=0)
    if not most:
        return [], 0.0, num_letters
    fitting: dict[str, str] = {}
    for language in languages:
        if letters[language] == most:
            fitting.setdefault(_code(language), language)
    return list(fitting.values()), most / num_letters, num_letters


@lru_cache(4_096)
def _script_of_letter(letter: str) -> str:
    return next((script for script, pattern in _LETTERS.items() if pattern.match(letter)), "")
