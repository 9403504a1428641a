"""Where the sentences of running text begin.

German and English: each place behind a mark that may end a sentence is decided by what stands before and behind it
(`_Rules`); no splitter that was measured comes near them (`tests/quality/sentence_boundaries.py`).  Other languages:
sentencex.  Knows no lines and no spans; linear in time.
"""

import re
from collections.abc import Iterator

from sentencex import segment as split_sentences

from service.text.abbreviations import (
    ABBREVIATIONS,
    AFTER_TIMES,
    ARTICLE_STEMS,
    BEFORE_ORDINALS,
    CAPITALISED,
    CLOSE_LISTS,
    MONTHS,
    NEVER_LAST,
    NUMBERED,
    SHORT_WORDS,
    STARTERS,
    WORDS_WITHOUT_VOWELS,
)

_WIDE = "。｡！？।؟۔"  # of scripts without spaces between sentences
_CLOSERS = "\"'”’»«“‘›‹)\\]}*_」』）"
_PLACES = re.compile(  # marks and what closes quotes and brackets, numbers of notes, white space
    rf"(?P<marks>[.!?…‼⁇⁈⁉{_WIDE}](?:[ \u00a0]\.)*+[.!?…‼⁇⁈⁉{_WIDE}{_CLOSERS}]*+)(?:\[\d{{1,4}}\]|[¹²³⁰⁴-⁹])*+"
    r"(?P<space>\s*+)(?:\[\d{1,4}\](?:\s++|\Z))*+(?=\S)"
)
_ASIDES = re.compile(  # short quotes and brackets, which are not cut
    r"\"(?<![\w.,!?]\")[^\"\n]{1,100}+\"(?!\w)|“[^“”]{1,100}+”|„[^„“”]{1,100}+[“”]|»[^«»]{1,100}+«|«[^«»]{1,100}+»"
    r"|\([^()]{1,100}+\)|\[[^\[\]]{1,100}+\]"
)
_GLUED = re.compile(r"[A-ZÄÖÜ](?:[a-zäöüß]++[\s,;!?]|['’ ])")  # "It was late.We walked": the space is missing
_REACH = 60  # characters before a mark that are looked at
_NO_TOKEN = re.compile(r"[^\w.,:'’/&-]|(?<!\d)[,:]|[,:](?!\d)")
_SINGLE = re.compile(r"[^\W\d_]{1,2}\.")  # "z." of "z. B."
_PARTS = re.compile(r"[-.&]|/(?=\w\w)")  # between the words of a token: "Dipl.-Ing"
_NEXT_WORD = re.compile(r"[\W_]*+([^\W_][\w'’-]*+)?")
_CAMEL = re.compile(r"[a-z]+[A-Z]")  # "iPhone" may begin a sentence
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)++(?:[^\W\d_]|Chr|Hd|Zt|[a-z]{2})")
_ROMAN = re.compile(r"[IVXLC]++")
_NUMBER = re.compile(r"\d++(?:[.,:]\d++)*+")
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])")  # 24.12
_ITEM = re.compile(r"\d{1,2}[.)]\s")
_EARLIER_ORDINAL = re.compile(r"\d\.\s?[-–/]?\s?\Z")  # "im 1.-3. Jahrhundert"
_POLITE_ORDER = re.compile(r"[A-ZÄÖÜ][a-zäöüß]+n Sie\b|[A-ZÄÖÜ][a-zäöüß]+ (?:dich|euch)\b")  # "Warten Sie"
_VOWEL = re.compile(r"[aeiouyäöüáàâéèêíìîóòôúùûæøåœ]", re.IGNORECASE)
_CUT_ADJECTIVE = re.compile(r"[^\W\d_]{2,}[bdfgkmnpstz]l")  # "schriftl", "gesetzl"
_HIGHEST_ORDINAL = 20  # that is one without an article before it: "sie wurde 2. Siegerin", "es sind 34. Anna ..."


def sentence_begins(text: str, language: str) -> list[int]:
    """Return where the sentences of a text begin, but the first.

    Args:
        text: running text; line breaks count as spaces.
        language: BCP 47, without script and region.
    """
    if language in _RULES:
        return list(_RULES[language].begins(text))
    places, place = list[int](), 0
    for sentence in split_sentences(language, text):
        places.append(place)
        place += len(sentence)
    return places[1:]


class _Rules:
    """The rules of a language.

    What follows a mark counts: a small letter goes on, a word that hardly anything but a sentence begins with ends even
    what an abbreviation or a number ends with.
    """

    def __init__(self, language: str) -> None:
        self._is_german = language == "de"
        self._never_last = NEVER_LAST[language]
        self._abbreviations = ABBREVIATIONS[language]
        self._capitalised = CAPITALISED[language]
        self._numbered = NUMBERED[language]
        self._months = MONTHS[language]
        self._starters = STARTERS[language]

    def begins(self, text: str) -> Iterator[int]:
        """Yield where the second sentence and those after it begin."""
        begin = 0
        asides = _ASIDES.finditer(text)
        aside = next(asides, None)
        for place in _PLACES.finditer(text):
            while aside is not None and aside.end() <= place.start():
                aside = next(asides, None)
            is_inside = aside is not None and aside.start() < place.start() and place.end() <= aside.end()
            if not is_inside and self._ends(text, begin, place):
                begin = place.end()
                yield begin

    def _ends(self, text: str, begin: int, place: re.Match[str]) -> bool:
        """Whether the sentence that begins at `begin` ends with the marks of a place."""
        following = _NEXT_WORD.match(text, place.end())
        word = following[1] if following else None
        marks = place["marks"]
        if not word or marks[0] in _WIDE:
            return bool(word)
        if not place["space"]:  # not in names of files and addresses
            last = text[max(begin, place.start() - _REACH) : place.start()].split()[-1:]
            is_word = len(word) > 3 or word.lower() in self._starters
            return bool(is_word and last and len(last[0]) > 3 and last[0].isalpha() and _GLUED.match(text, place.end()))
        goes_on = word[0].islower() and not _CAMEL.match(word)
        first = _NEXT_WORD.match(text, begin) if goes_on else None
        has_no_capitals = bool(first and first[1] and first[1].islower())  # its writer uses none
        if "!" in marks or "?" in marks:
            return not goes_on or (has_no_capitals and marks[-1] in "!?")
        if not marks.startswith(".") or marks.startswith(("..", ". .", ".\u00a0.")):
            return not goes_on and not word[0].isdigit()
        token, before = self._token_before(text, max(begin, place.start() - _REACH), place.start())
        if goes_on:
            return has_no_capitals and self._is_word(token)
        return self._point_ends(token, before, word, text[place.end() : place.end() + _REACH])

    def _token_before(self, text: str, begin: int, end: int) -> tuple[str, str]:
        """Return the token that ends a text, without its spaces, and what stands before it."""
        chunks = text[begin:end].split()
        if not chunks or text[end - 1].isspace():
            return "", text[begin:end].rstrip()
        token = chunks.pop()
        if not token.isalnum():
            whole, token = token, _NO_TOKEN.split(token)[-1].lstrip("'’-/&.")
            chunks = chunks if token == whole else []
        place = end - len(token)
        while chunks and _SINGLE.fullmatch(chunks[-1]):
            single = chunks.pop()
            token, place = single + token, text.rindex(single, begin, place)
        return token, text[begin:place].rstrip()

    def _point_ends(self, token: str, before: str, following: str, text: str) -> bool:
        """Whether a sentence ends with a token and a point, before a word with a capital or a number.

        Args:
            token: before the point.
            before: what stands before the token.
            following: the word behind the point.
            text: what stands behind the point.
        """
        is_start = self._is_start(following, text)
        if _NUMBER.fullmatch(token):
            is_listed = self._is_listed(token, before, text)
            return not is_listed and self._number_ends(token, before, following, is_start=is_start)
        return self._token_ends(token, before, following, is_start=is_start, is_item=bool(_ITEM.match(text)))

    def _is_start(self, word: str, text: str) -> bool:
        """Whether a word, which the text begins with, hardly does anything but begin a sentence."""
        if self._is_german and _POLITE_ORDER.match(text):
            return True
        small = word.replace("’", "'").partition("'")[0].lower()
        return word[0].isupper() and small in self._starters and not (len(small) == 1 and text[1:2] == ".")

    def _is_word(self, token: str) -> bool:
        """Whether a token, behind which a small letter follows, is a word that may end a sentence."""
        is_known = not (token.islower() and len(token) <= 3) or token in SHORT_WORDS
        return token.isalpha() and len(token) > 1 and is_known and not self._is_abbreviation(token)

    def _token_ends(self, token: str, before: str, following: str, *, is_start: bool, is_item: bool) -> bool:
        """Whether a sentence ends with a token and a point, before a word with a capital or a number."""
        small = token.lower()
        if small in ("a.m", "p.m"):
            return not (following in AFTER_TIMES or following in self._months or following[0].isdigit())
        word = token if _INITIALS.fullmatch(token) else _PARTS.split(token)[-1] or token
        if small in self._never_last or word.lower() in self._never_last:
            return False
        if small in CLOSE_LISTS or word.lower() in CLOSE_LISTS:
            return following[0].isupper()
        if ("." in token and word is token) or ".-" in token:  # "U.S", "Dipl.-Ing"
            return is_start
        if len(word) == 1 and word.isalpha():
            return self._letter_ends(word, before, is_start=is_start)
        return self._word_ends(word, following, is_start=is_start, is_item=is_item)

    def _letter_ends(self, letter: str, before: str, *, is_start: bool) -> bool:
        """Whether a sentence ends with one letter: an initial, a name ("plan B") or a unit ("5 m")."""
        if not before:
            return False
        return is_start if letter.isupper() else letter in "ghlmst" and before[-1].isdigit()

    def _word_ends(self, word: str, following: str, *, is_start: bool, is_item: bool) -> bool:
        is_number = following[0].isdigit()
        is_pronoun = following == "I" and not self._is_german
        is_label = len(following) == 1 or following == "Nr" or _ROMAN.fullmatch(following)
        if word.lower() in self._numbered and (is_number or (is_label and not is_pronoun)):
            return False
        if self._is_abbreviation(word) or (self._is_german and _ROMAN.fullmatch(word)):
            return is_start
        is_short = word.islower() and len(word) <= 3 and word not in SHORT_WORDS
        return not (is_number and is_short) or is_item

    def _is_abbreviation(self, word: str) -> bool:
        small = word.lower()
        if small in self._never_last or small in self._abbreviations or word in self._capitalised:
            return True
        if not word.isalpha() or small in WORDS_WITHOUT_VOWELS:
            return False
        if self._is_german and (small.endswith(("str", "nr")) or _CUT_ADJECTIVE.fullmatch(word)):
            return True
        return 1 < len(word) < 6 and not word.isupper() and not _VOWEL.search(word)

    def _is_listed(self, number: str, before: str, text: str) -> bool:
        """Whether a number with a point numbers what follows it: at the beginning, behind a colon, in a list."""
        if len(number) > 2 or not number.isdigit():
            return False
        is_first = before[-1:] in ("", ":", ";", ",")
        is_later = before.endswith((" and", " or", " und", " oder")) and re.search(r"(?<!\w)\d{1,2}\.\s", before)
        return bool(is_first or is_later or re.search(rf"[,;]\s(?:\w+\s)?{int(number) + 1}\.\s", text))

    def _number_ends(self, number: str, before: str, following: str, *, is_start: bool) -> bool:
        """Whether a sentence ends with a number and a point, before a word with a capital or another number."""
        if following in self._months:
            return False
        if following[0].isdigit():
            return number.isdigit() and len(number) > 3
        is_day = bool(_DAY.fullmatch(number))
        if not self._is_german or not (number.isdigit() or is_day):
            return True
        last = before.rsplit(maxsplit=1)[-1].strip("\"„“»«'’(),;:-–") if before else ""
        word = last.lower()
        introduces = word in BEFORE_ORDINALS or (word.startswith(ARTICLE_STEMS) and len(word) <= 7)
        if is_start:  # "Am 24.12. Um sechs Uhr kommen alle."
            return not (is_day and introduces and word == before.lower())
        is_low = number.isdigit() and int(number) <= _HIGHEST_ORDINAL and last.islower()
        return not (introduces or is_low or _EARLIER_ORDINAL.search(before))


_RULES = {language: _Rules(language) for language in ("de", "en")}
