"""A text in capitals only, as a model reads it best, and its translation in capitals again; pieces of one sentence.

Pure; knows no model but a callable that counts tokens.  Models learn little from capitals: THE CATS ARE SLEEPING is a
heap of odd pieces to them, "The cats are sleeping" is not (figures: docs/text.md).
"""

import re
from collections.abc import Callable, Sequence

from service.records import Span
from service.text.scripts import letters

_LONG_WORD = 4  # letters; shorter ones alone are abbreviations: "LED TV"
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
_LETTERS = re.compile(r"[^\W\d_]+")
_BEGIN = re.compile(r"[\"'„“”‚‘’«»‹›(¿¡]*+([^\W\d_]++)(?![.\w])")  # not of "z.B."
_FEW_WORDS = 3
_STOPS = ".!?"
_ALWAYS_CAPITAL = {
    "de": frozenset({"Sie", "Ihnen", "Ihr", "Ihre", "Ihrem", "Ihren", "Ihrer", "Ihres"}),
    "en": frozenset("I"),
}
_TURKIC = ("tr", "az")  # their i has a dot in both cases


def is_capitals(text: str, spans: Sequence[Span] = ()) -> bool:
    """Whether the text is written in capitals, apart from the spans; "LED TV" and the like are abbreviations."""
    plain = _without(text, spans) if spans else text
    if not plain.isupper():  # what has no case, as digits and Chinese, is no obstacle
        return False
    found = letters(plain)
    cased = sum(letter.isupper() for letter in found)
    return 2 * cased > len(found) and any(len(word) >= _LONG_WORD for word in _WORD.findall(plain) if word.isalpha())


def recase(text: str, count_tokens: Callable[[str], int], *, language: str = "", spans: Sequence[Span] = ()) -> str:
    """Return a text in capitals as a sentence: every word as the tokenizer knows it best, the first with a capital.

    Of "katze", "Katze" and "KATZE" that with the fewest tokens is taken: so German nouns and abbreviations keep their
    capitals.  Every code point keeps its place; words with digits, and the spans, stay as they are.
    """
    is_first = True

    def one_word(match: re.Match[str]) -> str:
        nonlocal is_first
        word = match[0]
        if any(span.begin < match.end() and match.start() < span.end for span in spans):
            is_first = False
            return word
        began, is_first = is_first, False
        lower = _lower(word, language)
        if len(lower) != len(word) or not word.replace("'", "").replace("\u2019", "").isalpha():
            return word
        if word == "I" and language[:2].lower() == "en":
            return word
        title = word[0] + lower[1:]
        choices = (title, word) if began else (lower, title, word)
        return min(choices, key=count_tokens)  # the first of equals

    return _WORD.sub(one_word, text)


def raise_case(text: str, *, language: str = "", kept: Sequence[str] = ()) -> str:
    """Return a translation in capitals, but what is to be kept as it is: "%s" must not become "%S"."""
    if not kept:
        return _upper(text, language)
    pattern = re.compile("|".join(re.escape(part) for part in sorted(kept, key=len, reverse=True)))
    raised, end = [], 0
    for match in pattern.finditer(text):
        raised += [_upper(text[end : match.start()], language), match[0]]
        end = match.end()
    return "".join([*raised, _upper(text[end:], language)])


def go_on(source: str, target: str, count_tokens: Callable[[str], int], *, language: str = "") -> str:
    """Return the translation of a piece of a sentence without what the model, which took it for a whole one, has added.

    That is a capital at the beginning where the source goes on in lower case, unless the tokenizer knows the word best
    with it, as German nouns, and a full stop that the source does not have.

    Args:
        source: the piece, without white space at its ends.
        target: its translation.
        count_tokens: gives the number of tokens of a word.
        language: of the translation.
    """
    if target[-1:] in _STOPS and source[-1:] not in _STOPS and target.rstrip(_STOPS):
        target = target.rstrip(_STOPS)
    word = _LETTERS.match(target)
    if word is None or not (source[:1].islower() and target[:1].isupper()):
        return target
    lower = _lower(word[0], language)
    is_capital = word[0] in _ALWAYS_CAPITAL.get(language[:2].lower(), ()) or (len(word[0]) > 1 and word[0].isupper())
    if is_capital or count_tokens(word[0]) < count_tokens(lower):
        return target
    return lower + target[word.end() :]


def begun_as_in_source(
    source: str, target: str, *, languages: tuple[str, str] = ("", ""), kept: Sequence[str] = ()
) -> str:
    """Return a translation, of the same length, that begins with a capital where its source does.

    One or two words of German may have their capital as nouns, which says nothing of the translation.

    Args:
        source: what was translated.
        target: its translation.
        languages: of both, BCP 47.
        kept: parts of the translation that stay as they are.
    """
    word, first = _BEGIN.match(target), _BEGIN.match(source)
    if word is None or first is None or not (word[1].islower() and first[1][0].isupper()):
        return target
    if languages[0][:2].lower() == "de" and len(source.split()) < _FEW_WORDS:
        return target
    begin, letter = word.start(1), _upper(word[1][0], languages[1])
    if len(letter) != 1 or any(target.startswith(one, begin) for one in kept):
        return target
    return target[:begin] + letter + target[begin + 1 :]


def _upper(text: str, language: str) -> str:
    return (text.replace("i", "\u0130") if language[:2].lower() in _TURKIC else text).upper()


def _lower(word: str, language: str) -> str:
    if language[:2].lower() in _TURKIC:
        word = word.replace("I", "\u0131").replace("\u0130", "i")
    return word.lower()


def _without(text: str, spans: Sequence[Span]) -> str:
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return " ".join(text[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True))
