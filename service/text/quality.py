"""What seems wrong with the translation of a segment, how good it probably is, and what to try instead.

    issues(source, target, ...)    -> what the texts show to be wrong; mostly nothing
    estimate(source, target, ...)  -> the chrF (Popovic 2015) from 0 to 1 that is to be expected of it
    safer(source, issues, params)  -> another way of translating the segment; better() chooses between two

Pure; knows no model.  No issue is sure: every bound is set where less than one good translation in 200 crosses it
(`bench/quality/issue_bounds.py`), and what is found becomes a warning.
How far to trust the estimate, and for which models, is in docs/text.md.
"""

import math
import re
from collections.abc import Sequence
from operator import eq, mul
from typing import NamedTuple, TypeAlias

from service.engine.wire import FinishReason, SearchParams
from service.records import Link, WarningKind
from service.text.languages import foreign_runs, is_dense, letters, primary, scripts_of
from service.text.number_check import difference, without

Issue: TypeAlias = tuple[WarningKind, str]  # with a message for people, without text of the segment

EMPTY: Issue = (WarningKind.EMPTY, "there is no translation; the source stands in its place")

# A translation is too long beyond factor x source + more, and too short below factor x source - less.
_LONGEST_CHARACTERS = 1.6, 16
_SHORTEST_CHARACTERS = 0.6, 12
_LONGEST_TOKENS = 1.7, 4
_SHORTEST_TOKENS = 0.6, 3

# As many words that equal those 1, 2, 3... places before them, in a row, are a loop: one word four times, two words
# two and a half times, six or more words twice; and so many characters.
_WORD_RUNS = (3, 3, 5, 7, 8, *range(6, 41))
_CHARACTER_RUNS = (8, 12, 12, 16, 20, 18, 21, 24, 27, 30, 33, 36)  # "hahaha" and "........" are none
_FEW_DIFFERENT_WORDS = 0.4  # of all words, in translations of at least so many:
_MANY_WORDS = 20
_ENDLESS_WORD = 30  # characters; only there, and where no spaces are, characters are looked at

_COPIED_SHARE = 0.8
_CAPTION = 12  # letters; as many in common are no name in a script without capitals
# Whole sentences may be the same in two of these.
_NEAR_LANGUAGES = [
    frozenset(names.split())
    for names in re.split(
        "; ",
        "da nb nn no sv; es pt gl ca ast oc it; cs sk; bs hr sr sl; id ms; bg mk; be ru uk; af nl; hi mr ne; zh yue",
    )
]
_FOREIGN_SHARE = 0.25  # of the letters
LEAST_COVERAGE = 0.5
_FEWEST_COVERED = 4  # longer words of a source, so that a share says something
_WORD = re.compile(r"\w+")


def issues(
    source: str,
    target: str,
    *,
    finish_reason: FinishReason = FinishReason.END_OF_SENTENCE,
    source_language: str = "",
    target_language: str = "",
    source_tokens: int = 0,
    target_tokens: int = 0,
    coverage: float | None = None,
    kept: Sequence[str] = (),
) -> list[Issue]:
    """Return what seems wrong with a translation; mostly nothing.

    Args:
        source: what was translated.
        target: its translation, as the caller gets it.
        finish_reason: why the hypothesis ended.
        source_language: BCP 47; empty: not known, then less is found.
        target_language: as well.
        source_tokens: 0: not known.
        target_tokens: as well.
        coverage: see `coverage`; None: not computed.
        kept: parts of the source that stand in every translation as they are.
    """
    found: list[Issue] = []
    if finish_reason is FinishReason.LENGTH:
        found.append((WarningKind.TRUNCATED, f"the translation was cut at its longest length, {target_tokens} tokens"))
    if is_empty(source, target, kept):
        return [*found, EMPTY]
    if not target or target.isspace():
        return found
    words = target.split()
    word_set = set(words)
    may_loop = len(words) - len(word_set) >= 3 or max(map(len, words)) >= _ENDLESS_WORD
    if finish_reason is FinishReason.REPETITION or (may_loop and _loops(source, target)):
        found.append((WarningKind.REPETITION, "something is repeated again and again"))
    said, given = (source, target) if not kept else (without(source, kept), without(target, kept))
    if source == target and any(map(str.islower, _WORD.findall(said))):
        copied, copy = source, target  # then words that are kept show it as well
    else:
        copied, copy = said, given
    source_words = copied.split()
    source_set = set(source_words)
    if len(source_set & word_set) * 2 > len(source_set) and _is_copied(
        copied, copy, source_words, source_language, target_language
    ):
        found.append((WarningKind.COPIED, "the translation is the source"))
    if changed := difference(source, target, source_language, target_language, kept):
        message = f"numbers of the source that are missing: {len(changed.missing)}; new ones: {len(changed.surplus)}"
        message += f"; without their unit: {len(changed.bare)}" if changed.bare else ""
        found.append((WarningKind.NUMBERS, message))
    scripts = scripts_of(target_language)
    if scripts and not (target.isascii() and scripts[0] == "Latn"):
        share = _foreign_share(source, target, source_language, target_language)
        if share > _FOREIGN_SHARE:
            message = f"{share:.0%} of the letters are not of the script of {target_language!r}"
            found.append((WarningKind.WRONG_SCRIPT, message))
    found += _length_issues(len(source), len(target), source_tokens, target_tokens, source_language, target_language)
    if coverage is not None and coverage < LEAST_COVERAGE:
        found.append((WarningKind.LOW_COVERAGE, f"only {coverage:.0%} of the source's words have a counterpart"))
    return found


def is_empty(source: str, target: str, kept: Sequence[str] = ()) -> bool:
    """Whether a source has words, and its translation nothing but punctuation and what is kept."""
    if kept:
        source, target = without(source, kept), without(target, kept)
    return _WORD.search(target) is None and _WORD.search(source) is not None


def coverage(source: str, links: Sequence[Link]) -> float:
    """Return the share of the source's longer words that are linked to a word of the translation; 1 if they are few.

    Words of less than four letters often have no counterpart in a good translation.
    """
    words = [match.start() for match in _WORD.finditer(source) if len(match[0]) >= 4]
    linked = {position for link in links for position in range(link.source.begin, link.source.end)}
    return sum(begin in linked for begin in words) / len(words) if len(words) >= _FEWEST_COVERED else 1.0


def _loops(source: str, target: str) -> bool:
    """Whether the translation repeats something that the source does not."""
    words, source_words = _WORD.findall(target.lower()), _WORD.findall(source.lower())
    if _repeats(words, _WORD_RUNS) and not _repeats(source_words, _shorter(_WORD_RUNS)):
        return True
    variety, source_variety = (len(set(some)) / max(1, len(some)) for some in (words, source_words))  # share of others
    if len(words) >= _MANY_WORDS and variety < _FEW_DIFFERENT_WORDS < 0.8 * (source_variety or 1.0):
        return True
    longest = max(target.split(), key=len)
    return (
        len(longest) >= _ENDLESS_WORD
        and _repeats(longest, _CHARACTER_RUNS)
        and not _repeats(source, _shorter(_CHARACTER_RUNS))
    )


def _repeats(items: Sequence[str], runs: Sequence[int]) -> bool:
    """Whether as many items in a row equal those 1, 2, 3... places before them; runs[0] is for 1.

    "a b a b a c": three in a row equal those 2 places before them.
    """
    return any(
        b"\1" * run in bytes(map(eq, items, items[distance:]))
        for distance, run in enumerate(runs, start=1)
        if len(items) >= distance + run
    )


def _shorter(runs: Sequence[int]) -> list[int]:
    """Return what a source has to repeat so that its translation may repeat so much."""
    return [2 * run // 3 for run in runs]


def _is_copied(source: str, target: str, words: Sequence[str], source_language: str, target_language: str) -> bool:
    """Whether the words that a translation has to change are those of the source.

    Those are words in lower case: names and numbers stay, and "Computer" is one word in many languages.
    """
    languages = {primary(source_language), primary(target_language)}
    if len(languages) == 1 and "" not in languages:
        return False
    is_equal = source.split() == target.split()
    if any(languages <= group for group in _NEAR_LANGUAGES):
        return is_equal and len(words) >= 10
    changing = [word for word in _WORD.findall(source) if word.islower() and len(word) > 1]
    if not changing and source.isupper():
        changing = [word for word in _WORD.findall(source) if word.isalpha() and len(word) > 3]
    if not changing:  # without capitals there is no telling what is a name
        return is_equal and source.upper() == source.lower() and len(letters(source)) >= _CAPTION
    kept = set(_WORD.findall(target)).intersection(changing)
    is_long_enough = len(changing) >= 3 or (is_equal and len(words) >= 3 and len(changing) == 2)
    return is_long_enough and len(kept) >= _COPIED_SHARE * len(set(changing))


def _foreign_share(source: str, target: str, source_language: str, target_language: str) -> float:
    """Return the share of the target's letters that are in a wrong script.

    Words of the source may stay if they are Latin, as names are, or if they are foreign in the source, too.
    """
    runs = foreign_runs(target, target_language)
    if not runs:
        return 0.0
    quoted = set(foreign_runs(source, source_language))
    wrong = [run for run in runs if run not in quoted and not (run in source and run[0] < "\u0250")]
    return sum(map(len, wrong)) / len(letters(target))


def _length_issues(
    source_characters: int, characters: int, source_tokens: int, tokens: int, source_language: str, target_language: str
) -> list[Issue]:
    if source_tokens and tokens and not _is_usual(source_tokens, tokens, _SHORTEST_TOKENS, _LONGEST_TOKENS):
        return [(WarningKind.LENGTH_RATIO, f"{tokens} tokens are an unusual length for a source of {source_tokens}")]
    if _is_usual(source_characters, characters, _SHORTEST_CHARACTERS, _LONGEST_CHARACTERS):
        return []
    if is_dense(source_language) != is_dense(target_language):
        return []
    return [
        (WarningKind.LENGTH_RATIO, f"{characters} characters are an unusual length for a source of {source_characters}")
    ]


def _is_usual(source: int, target: int, shortest: tuple[float, int], longest: tuple[float, int]) -> bool:
    return shortest[0] * source - shortest[1] <= target <= longest[0] * source + longest[1]


# Of `features`, in their order.  The script prints them.
_CHRF_WEIGHTS = (-1.0528, 2.1449, 0.2914, -0.4133, 0.0314, 0.0921)
_USUAL_RATIO = -0.1  # logarithm of target / source in characters; what is shorter may lack something


def estimate(source: str, target: str, *, score: float, source_tokens: int, target_tokens: int) -> float:
    """Return the quality of a translation, from 0 to 1.

    Args:
        source: what was translated.
        target: its best translation.
        score: mean log-probability of the translation's tokens.
        source_tokens: of the source, end-of-sentence included.
        target_tokens: of the translation, end-of-sentence included where the model produced one.
    """
    if not target or not source_tokens or not target_tokens:
        return 0.0
    found = features(source, target, score=score, source_tokens=source_tokens, target_tokens=target_tokens)
    expected: float = sum(map(mul, _CHRF_WEIGHTS, found))
    return min(1.0, max(0.0, expected))


def features(source: str, target: str, *, score: float, source_tokens: int, target_tokens: int) -> tuple[float, ...]:
    """Return what the estimate is a weighted sum of; arguments as for `estimate`, none empty.

    The tokens' mean probability; the logarithm of the source's length, as the same probability says more of a long one;
    both multiplied; characters for each token, as made-up words have many short ones; how much length is missing.
    """
    probability, length = math.exp(score), math.log(source_tokens)
    missing = min(0.0, math.log(len(target) / len(source)) - _USUAL_RATIO)
    return (1.0, probability, length, probability * length, len(target) / target_tokens, missing)


_NO_REPEAT = 3  # tokens
_BETTER_IN_PIECES = {
    *(WarningKind.REPETITION, WarningKind.TRUNCATED, WarningKind.EMPTY),
    *(WarningKind.LENGTH_RATIO, WarningKind.LOW_COVERAGE),
}
_FEWEST_WORDS_TO_CUT = 8


class Attempt(NamedTuple):
    """A translation of a segment, as far as it decides which one the caller gets."""

    issues: Sequence[Issue]
    score: float  # natural logarithm, length-normalised
    coverage: float | None = None


class Retry(NamedTuple):
    """A way to translate a segment again."""

    params: SearchParams
    in_pieces: bool = False  # each clause by itself: `sentences.cut` with half of the segment's tokens as the limit


def safer(source: str, found: Sequence[Issue], params: SearchParams) -> Retry | None:
    """Return the way that most likely repairs the issues of a segment; None: no other way is known."""
    kinds = {kind for kind, _ in found}
    if WarningKind.REPETITION in kinds and not 0 < params.no_repeat_ngram_size <= _NO_REPEAT:
        return Retry(params._replace(no_repeat_ngram_size=_NO_REPEAT))
    if kinds & _BETTER_IN_PIECES and len(source.split()) >= _FEWEST_WORDS_TO_CUT:
        return Retry(params, in_pieces=True)
    return None


# What is lost or added weighs more than how it reads.
_HARM = {
    WarningKind.NOT_TRANSLATED: 8,
    WarningKind.EMPTY: 8,
    WarningKind.COPIED: 6,
    WarningKind.WRONG_SCRIPT: 6,
    WarningKind.REPETITION: 5,
    WarningKind.NUMBERS: 5,
    WarningKind.TRUNCATED: 4,
    WarningKind.LENGTH_RATIO: 3,
    WarningKind.LOW_COVERAGE: 3,
}


def better(first: Attempt, second: Attempt) -> bool:
    """Whether the second attempt is better: lighter issues, else more coverage, else the higher score."""
    weights = [sum(_HARM.get(kind, 1) for kind, _ in attempt.issues) for attempt in (first, second)]
    if weights[0] != weights[1]:
        return weights[1] < weights[0]
    if first.coverage is not None and second.coverage is not None and first.coverage != second.coverage:
        return second.coverage > first.coverage
    return second.score > first.score
