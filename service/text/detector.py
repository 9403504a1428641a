"""In which of some languages a text is written, or that it is plainly in none of them.

The script decides where only one of the languages is written in it; among others py3langid chooses by the sequences of
bytes in the text (Lui and Baldwin 2012).  What is no language (numbers, URLs, placeholders, tags) is left out first.

The model takes half a second to load, and 80 MB of memory for as long as the process lives.
"""

import io
import lzma
import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from model.language_codes import Subtags, subtags_of
from service.records import DetectedLanguage

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

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
# The first word of a letter's name in Unicode, and the scripts (ISO 15924) of languages that use such letters.
_SCRIPTS_BY_NAME = {
    "CJK": ("Hans", "Hant", "Jpan", "Kore"),
    "HIRAGANA": ("Jpan",),
    "KATAKANA": ("Jpan",),
    "HANGUL": ("Kore",),
    "LATIN": ("Latn",),
    "FULLWIDTH": ("Latn",),
    "CYRILLIC": ("Cyrl",),
    "GREEK": ("Grek",),
    "ARABIC": ("Arab",),
    "HEBREW": ("Hebr",),
    "ARMENIAN": ("Armn",),
    "GEORGIAN": ("Geor",),
    "ETHIOPIC": ("Ethi",),
    "DEVANAGARI": ("Deva",),
    "BENGALI": ("Beng",),
    "GURMUKHI": ("Guru",),
    "GUJARATI": ("Gujr",),
    "ORIYA": ("Orya",),
    "TAMIL": ("Taml",),
    "TELUGU": ("Telu",),
    "KANNADA": ("Knda",),
    "MALAYALAM": ("Mlym",),
    "SINHALA": ("Sinh",),
    "THAI": ("Thai",),
    "LAO": ("Laoo",),
    "TIBETAN": ("Tibt",),
    "MYANMAR": ("Mymr",),
    "KHMER": ("Khmr",),
}


# Languages that py3langid takes for each other, as it calls them: varieties of one, and neighbours whose readers
# understand each other.  Where one of a line is asked about, a text in another one of it is never plainly in another.
_ALIKE = [
    frozenset(line.split())
    for line in """
        ar ary arz
        bg mk
        bs hr sr
        cs sk
        da nb nn no
        de lb
        el grc
        en pcm
        es an ext
        fr wa
        gl pt
        he hbo
        id ms
        it lij vec
        ku sdh
        lv ltg
        nl af fy
        uz uzs
        zh wuu yue
    """.strip().splitlines()
]
_NO_WORDS = "zxx"  # py3langid's name of what is no language

NO_LANGUAGE = DetectedLanguage("", 0.0)

_loading = threading.Lock()


class Reading(NamedTuple):
    """What a text says of the language that it is in."""

    confidences: Mapping[str, float] = {}  # of the languages asked about that it can be in, the highest first
    other: DetectedLanguage | None = None  # what it is in, where that is plainly none of them; may be no language known
    is_likeliest: bool = False  # whether the first of the languages is more probable than all others that are known

    @property
    def found(self) -> DetectedLanguage:
        """The language asked about that it most probably is in, if any."""
        for language, confidence in self.confidences.items():
            return DetectedLanguage(language, confidence)
        return NO_LANGUAGE


class Detector:
    """Detects languages; may be used from several threads at once."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._identifier: LanguageIdentifier | None = None
        self._labels: dict[str, str] = {}  # py3langid's name of a language, by ours
        self._loading = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether the model is there."""
        return self._identifier is not None

    def needs_model(self, languages: Sequence[str]) -> bool:
        """Whether the model has to be loaded before it can be told which of these languages a text is in."""
        return self._identifier is None and bool(languages)

    def load(self) -> None:
        """Load the model, which takes half a second, unless it is there; may raise anything, such as MemoryError."""
        with self._loading:
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
        """Return what a text says of its language, with these (BCP 47) in mind; loads the model if it is needed."""
        words = _words_of(text[:_READ])
        return self._read(" ".join(words)[:_JUDGED], languages)

    def read_parts(self, text: str, languages: Sequence[str]) -> list[Reading]:
        """Return what parts of a text say, from its beginning to its end; none if it is too short to have some."""
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
def script_of(language: str) -> str:
    """Return the script (ISO 15924) of a language's tag, or its most likely one; Latin where nobody knows."""
    return (subtags_of(language) or Subtags("")).likely.script or "Latn"


@lru_cache(256)
def _code(language: str) -> str:
    return (subtags_of(language) or Subtags(language)).language


def _in_script(words: str, languages: Sequence[str]) -> tuple[list[str], float, int]:
    """Return the languages whose script most letters are in, one of each code, the share of those, and all letters."""
    counts = Counter(name for letter in words if letter.isalpha() and (name := _name_of(letter)))
    letters = {
        script: sum(count for name, count in counts.items() if script in _SCRIPTS_BY_NAME[name])
        for script in {script_of(language) for language in languages}
    }
    num_letters, most = counts.total(), max(letters.values(), default=0)
    if not most:
        return [], 0.0, num_letters
    fitting: dict[str, str] = {}
    for language in languages:
        if letters[script_of(language)] == most:
            fitting.setdefault(_code(language), language)
    return list(fitting.values()), most / num_letters, num_letters


@lru_cache(4_096)
def _name_of(letter: str) -> str:
    """Return the first word of a letter's name where it tells a script, else nothing."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return name if name in _SCRIPTS_BY_NAME else ""
