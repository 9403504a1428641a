"""In which of some languages a text is written.

The script decides where only one of the languages is written in it; among others py3langid chooses by the sequences of
bytes in the text (Lui and Baldwin 2012).  What is no language (numbers, URLs, placeholders, tags) is left out first.

The model is loaded when it is needed: half a second, and 80 MB of memory for as long as the process lives.
"""

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from model.language_codes import Subtags, subtags_of
from service.records import DetectedLanguage

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_READ = 4_000  # code points of a text, markup included, of which ...
_JUDGED = 1_000  # ... so many say enough: 0.1 ms
_NOT_LANGUAGE = re.compile(
    r"<[^<>]*>"  # tags
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


NO_LANGUAGE = DetectedLanguage("", 0.0)


class Detector:
    """Detects languages; may be used from several threads at once."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._identifier: LanguageIdentifier | None = None
        self._labels: dict[str, str] = {}  # py3langid's name of a language, by ours
        self._loading = threading.Lock()

    def needs_model(self, languages: Sequence[str]) -> bool:
        """Whether the model has to be loaded before it can be told which of these languages a text is in."""
        scripts = [_letters_of(script_of(language)) for language in languages]
        return self._identifier is None and len(set(scripts)) < len(scripts)

    def load(self) -> None:
        """Load the model, which takes half a second, unless it is there."""
        with self._loading:
            if self._identifier is None:
                from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - few servers need it

                identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
                self._labels = {_code(label): label for label in identifier.labels}
                self._identifier = identifier

    def detect(self, text: str, languages: Sequence[str]) -> DetectedLanguage:
        """Return which of these languages (BCP 47) a text is in; loads the model if it is needed.

        The confidence is the probability of the language among those, as py3langid normalises it, times the share of
        the letters that are in its script.  A language that py3langid does not know can only be told by its script.
        """
        words = " ".join(_NOT_LANGUAGE.sub(" ", text[:_READ]).split())[:_JUDGED]
        fitting, share = _in_script(words, languages)
        if len(fitting) > 1:
            language, probability = self._most_likely(words, fitting)
            return DetectedLanguage(language, probability * share) if language else NO_LANGUAGE
        return DetectedLanguage(fitting[0], share) if fitting else NO_LANGUAGE

    def _most_likely(self, words: str, languages: Sequence[str]) -> DetectedLanguage:
        self.load()
        assert self._identifier is not None
        logs = dict(self._identifier.rank(words))
        known = {language: logs[label] for language in languages if (label := self._labels.get(_code(language)))}
        if not known or min(known.values()) < _NO_FEATURES:
            return NO_LANGUAGE
        best = max(known, key=lambda language: known[language])
        temperature = math.sqrt(len(words.encode(errors="replace")))  # as py3langid, to be calibrated at every length
        return DetectedLanguage(best, 1 / sum(math.exp((log - known[best]) / temperature) for log in known.values()))


@lru_cache(256)
def script_of(language: str) -> str:
    """Return the script (ISO 15924) of a language's tag, or its most likely one; Latin where nobody knows."""
    return (subtags_of(language) or Subtags("")).likely.script or "Latn"


@lru_cache(256)
def _code(language: str) -> str:
    return (subtags_of(language) or Subtags(language)).language


def _letters_of(script: str) -> str:
    """Return the script, or "CJK" where its letters are those of other scripts as well."""
    return "CJK" if script in _SCRIPTS_BY_NAME["CJK"] else script


def _in_script(words: str, languages: Sequence[str]) -> tuple[list[str], float]:
    """Return the languages whose script most letters are in, one of each code, and the share of those letters."""
    counts = Counter(name for letter in words if letter.isalpha() and (name := _name_of(letter)))
    letters = {
        script: sum(count for name, count in counts.items() if script in _SCRIPTS_BY_NAME[name])
        for script in {script_of(language) for language in languages}
    }
    most = max(letters.values(), default=0)
    if not most:
        return [], 0.0
    fitting: dict[str, str] = {}
    for language in languages:
        if letters[script_of(language)] == most:
            fitting.setdefault(_code(language), language)
    return list(fitting.values()), most / sum(counts.values())


@lru_cache(4_096)
def _name_of(letter: str) -> str:
    """Return the first word of a letter's name where it tells a script, else nothing."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return name if name in _SCRIPTS_BY_NAME else ""
