"""Translates cases and collects what is wrong, on a scripted pipeline or on anything else that takes a request."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from html import unescape

from service.records import TextFormat, Translation, TranslationRequest
from tests.fakes.scripted_model import tokenizer_of
from tests.text.conditions import UNKNOWN_MARK, broken_conditions, lost_characters
from tests.text.corpus import Case

LARGEST_CALL = 256  # texts
INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})  # categories of Unicode: control, format, separators

Translate = Callable[[TranslationRequest], Sequence[Translation]]


def translated(translate: Translate, cases: Sequence[Case]) -> list[Translation]:
    """Return the translation of each case; those of a kind go in one call, so that they share every batch."""
    kinds: dict[tuple[TextFormat, str], list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        kinds[case.format, case.languages].append(index)
    answers: dict[int, Translation] = {}
    for (text_format, languages), places in kinds.items():
        source, target = languages.split("-")
        for begin in range(0, len(places), LARGEST_CALL):
            batch = places[begin : begin + LARGEST_CALL]
            request = TranslationRequest(
                texts=[cases[index].text for index in batch],
                format=text_format,
                source_language=source,
                target_language=target,
            )
            answers |= zip(batch, translate(request), strict=True)
    return [answers[index] for index in range(len(cases))]


def problems(cases: Sequence[Case], answers: Sequence[Translation]) -> dict[str, list[str]]:
    """Return what is wrong, by the names of the cases."""
    found: dict[str, list[str]] = {}
    for case, answer in zip(cases, answers, strict=True):
        wrong = broken_conditions(case, answer)
        if answer.error is None and not wrong:
            wrong = lost_characters(case, answer, known(case.languages))
        if wrong:
            found[case.name] = [repr(case.text), repr(answer.text if answer.error is None else ""), *wrong]
    return found


@cache
def known(languages: str) -> "Known":
    """Return what the tokenizer of an included model knows."""
    return Known(languages)


class Known:
    """Whether the included model's tokenizer gives a character back, or it shows nothing."""

    def __init__(self, languages: str) -> None:
        self._tokenizer = tokenizer_of(languages)
        self._answers: dict[str, bool] = {}

    def __call__(self, character: str) -> bool:
        if character not in self._answers:
            said = self._tokenizer.decode(self._tokenizer.encode(character))
            self._answers[character] = UNKNOWN_MARK not in said or unicodedata.category(character) in INVISIBLE
        return self._answers[character]


def letters(text: str) -> str:
    """Return the text as the tokenizer sees it, without what may change.

    That is white space, what nobody sees, the escaping of quotes, and a letter or a syllable beyond the third in a row.
    """
    composed = unicodedata.normalize("NFKC", unescape(text))
    seen = "".join(one for one in composed if unicodedata.category(one) not in INVISIBLE)
    return re.sub(r"([^\W\d_]{1,2})\1{3,}", r"\1\1\1", re.sub(r"\\(?=[\"'])|'(?=')", "", seen))
