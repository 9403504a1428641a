"""What every language spells alike, and whether a translation has it: codes, letters that stand for something, names.

    lost_codes("I love NY and O'Neill.", "Ich liebe O'Neil.", "en", "de")  # -> NY, O'Neill

Models drop such words, or repeat a letter in them once too often or too seldom ("Bonnn", "COBADEFXXX").  What is a span
already is left out by the caller.
"""

import re
from collections import Counter

from service.records import Span
from service.text.languages import primary
from service.text.number_words import LANGUAGES, ROMAN, in_words, roman
from service.text.numbers import Number

# Capitals (NY, BICs), capitals inside a word (eBay, O'Neill), letters with digits (e4, sda1), letters that are no words
# (point B), numbers of kings, initials of names, letters and small Roman
# numbers in brackets.
_CODE = re.compile(
    r"(?<![\w'’])(?:(?=[^\W_]+[A-ZÄÖÜ]|[A-Z]['’][A-Z])[^\W_]++(?:['’][^\W_]++)*+"
    r"|[ivx]{2,6}+(?!\w)|[a-z]{1,4}+\d[^\W_]*+(?<!m[23])(?<!\bco2)"
    r"|[A-ZÄÖÜ](?=\. [A-ZÄÖÜ](?:\.|[a-zäöü]))(?<!\..)(?<!\bU\. .)(?<![a-z]\. .)(?<!U(?=\. S\.))"
    r"|(?<![-/&.(°])(?<!\d )(?<!\w\. )(?:[d-hj-qs-tv-zB-HJ-NP-Z]|(?<=[a-z] )(?:A(?! [A-Z])|I))"
    r"(?![-/&]|(?<![IVX])\.\s?\w))(?![\w'’])|(?<!\w)\((?:[A-Za-z]|[ivx]{2,6})\)"
)
_BEFORE_NUMBER = re.compile(  # else "I" is a pronoun in English
    r"\b(?:Albert|Charles|Edward|Elizabeth|Ferdinand|Francis|Frederick|George|Henry|James|John|Leopold|Louis|Mary"
    r"|Napoleon|Nicholas|Otto|Peter|Philip|William|War|Act|Annex|Article|Chapter|Class|Part|Phase|Section|Table|Type"
    r"|Volume) \Z"
)
# Find all that _CODE finds, and are fast on what has none.
_MAY_BE = (
    re.compile(r"[A-ZÄÖÜ](?:['’]|(?<=\w.)|(?<![AI])(?!\w)|(?<=[a-z] .)(?!\w))"),
    re.compile(r"\d(?<=[a-z]\d)"),
    re.compile(r"[ \"'„“”‚‘»«\[,=+:;<>|*–—\n](?:[d-hj-qs-tv-z]|[ivx]{2,6})(?!\w)"),
)
_BRACKETS = re.compile(r"(?<!\w)\([^()\n]{1,300}+\)(?!\w)")  # not of "file(s)"
_ENDING = re.compile(r"(?<=\w\w)['’]?s\Z")  # PDFs
_TRANSLATED = frozenset({"OK", "TV", "UK", "US"})
_SIGNS, _SHORTEST_NAME = ".,;:!?()[]\"'“”„‚‘’«»", 3
_AGAIN = re.compile(r"(.)\1+", re.DOTALL)


def lost_codes(source: str, target: str, source_language: str, target_language: str) -> list[Number]:
    """Return the codes of a source that its translation lacks; it may say capitals in words, as "UN"."""
    lost = list[Number]()
    capitals, digits, letters = _MAY_BE
    begins = "(" in source or (source[:1].islower() and not source[1:2].isalpha())
    may_have = begins or capitals.search(source) or digits.search(source) or letters.search(source)
    matches = list(_CODE.finditer(source)) if may_have and not source.isupper() else []
    counts = Counter([match[0] for match in matches])
    for match in matches:
        code, begin = match[0], match.start()
        is_word = code == "I" and primary(source_language) == "en"
        if is_word and not _BEFORE_NUMBER.search(source[max(0, begin - 12) : begin]):
            continue
        if len(code) == 1:
            is_said = len(re.findall(rf"\b{code}\b", target)) >= counts[code]
        else:
            stem = _ENDING.sub("", code)
            is_said = stem in target or stem in _TRANSLATED or (stem.isupper() and stem.capitalize() in target)
        if not (is_said or _is_said_as_number(code, target, primary(target_language))):
            lost.append(_number(code, begin))
    return lost


def _is_said_as_number(code: str, target: str, language: str) -> bool:
    """Whether a translation says a Roman number in words or digits: "Ludwig der 14."."""
    match = ROMAN.fullmatch(code)
    if match is None or language not in LANGUAGES:
        return False
    value = roman(match)
    return value in in_words(target, language) or re.search(rf"\b{value}(?:\.|st|nd|rd|th)", target) is not None


def damaged_codes(source: str, target: str, *languages: str) -> list[Number]:
    """Return the lost codes that no words say, lost brackets, and names in which letters are repeated otherwise."""
    lost = lost_codes(source, target, *languages)
    found = [
        one
        for one in lost
        if len(one.text) == 1 or not (one.text.isalpha() and one.text.isupper()) or ROMAN.fullmatch(one.text)
    ]
    if "(" in source and len(_BRACKETS.findall(source)) != len(_BRACKETS.findall(target)):
        places = [place for pair in _BRACKETS.finditer(source) for place in (pair.start(), pair.end() - 1)]
        found += [_number(source[place], place) for place in places]
    if not (said := _names(source)):
        return found
    given = _names(target)
    gone = {_AGAIN.sub(r"\1", name.casefold()): name for name in said - given - {one.text for one in found}}
    for name in given - said if gone else ():
        was = gone.get(_AGAIN.sub(r"\1", name.casefold()), name)
        if was.casefold() != name.casefold():
            found.append(_number(was, source.index(was)))
    return found


def _names(text: str) -> set[str]:
    """Return the words with capitals, but the first one."""
    return {word.strip(_SIGNS) for word in text.split()[1:] if not word.islower() and len(word) >= _SHORTEST_NAME}


def _number(code: str, begin: int) -> Number:
    return Number(code, Span(begin, begin + len(code)), "code", frozenset({("code", code)}))
