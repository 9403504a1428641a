"""The numbers that a text says in words, and its days and months.

    in_words("zweihundert", "de")          # -> 200: whatever these words may mean
    said_numbers("half past six", "en")    # -> one number, which is 6:30 or 18:30: what they surely mean

A word may mean several things ("second", "acht" of "achten").  `in_words` finds all numbers that a text may have said,
so that digits are not reported as missing.  `said_numbers` finds those that a translation has to say, too.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from service.records import Span
from service.text.numbers import (
    MONTH,
    MONTH_NUMBERS,
    MONTHS,
    Number,
    Value,
    numbered,
    numbers,
    ordinal,
    separators,
    table,
)

_ENGLISH: Final = numbered(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_ENGLISH_ORDINALS: Final = numbered(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth"
    " sixteenth seventeenth eighteenth nineteenth"
)
_GERMAN: Final = numbered(
    "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
    " achtzehn neunzehn"
)
_TENS: Final = {
    "en": numbered("twenty thirty forty fifty sixty seventy eighty ninety", 2),
    "de": numbered("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig", 2),
}


def _english() -> Iterator[dict[str, Fraction]]:
    yield _ENGLISH | _ENGLISH_ORDINALS
    for word, ten in _TENS["en"].items():
        yield dict.fromkeys((word, f"{word[:-1]}ieth", f"{word[:-1]}ies"), 10 * ten)
        for unit, number in (_ENGLISH | _ENGLISH_ORDINALS).items():
            yield {f"{word}-{unit}": 10 * ten + number} if number < 10 else {}
    yield table(
        "zero 0 zeroth 0 a 1 an 1 another 1 once 1 single 1 twice 2 double 2 both 2 pair 2 couple 2 twin 2 triple 3"
        " half 1/2 quarter 1/4 dozen 12 decade 10 fortnight 14 noon 12 midnight 0 hundred 100 hundredth 100"
        " thousand 1e3 thousandth 1e3 million 1e6 billion 1e9 trillion 1e12"
    )


def _german() -> Iterator[dict[str, Fraction]]:
    yield _GERMAN
    for word, ten in _TENS["de"].items():
        yield {word: 10 * ten}
        yield {f"{unit}und{word}": 10 * ten + number for unit, number in _GERMAN.items() if number < 10}
    yield {f"{unit}einhalb": number + Fraction(1, 2) for unit, number in _GERMAN.items()}
    yield table(
        "null 0 erst 1 dritt 3 siebt 7 anderthalb 3/2 halb 1/2 hälfte 1/2 viertel 1/4 dreiviertel 3/4 doppel 2"
        " doppelt 2 beide 2 paar 2 zwo 2 dutzend 12 mittag 12 jahrzehnt 10 mitternacht 0 million 1e6 milliarde 1e9"
        " billion 1e12"
    )


WORDS = {
    language: {word: number for words in tables for word, number in words.items()}
    for language, tables in {"en": _english(), "de": _german()}.items()
}
_BY_MEANING = {
    language: {number: word for word, number in reversed(words.items())} for language, words in WORDS.items()
}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_UNIT = _any_of([word for word, number in _GERMAN.items() if number < 10])
_TEN = _any_of(_TENS["de"])
_BELOW_100 = rf"(?:{_TEN}|sechzehn|siebzehn|zehn|elf|zwölf|(?:{_UNIT})(?:und(?:{_TEN})|zehn)?+)"
_BELOW_1000 = rf"(?:{_BELOW_100}?hundert(?:und)?{_BELOW_100}?+|{_BELOW_100})"
_GERMAN_NUMBER = rf"(?:{_BELOW_1000}?tausend(?:und)?{_BELOW_1000}?+|{_BELOW_1000})"
_SPELLED = {  # group 1: the word
    "en": re.compile(rf"\b({_any_of(WORDS['en'])})(?:s|fold)?\b".replace("-", "[- ]")),
    "de": re.compile(  # zweite, dreijährig, viermal, Millionen
        rf"\b({_any_of([word for word in WORDS['de'] if word not in _GERMAN])}|{_GERMAN_NUMBER})\w*"
    ),
}
LANGUAGES = _SPELLED.keys()
_LINKS = ("", "a", "an", "and", "and a", "und")


def _value(word: str, language: str) -> Fraction:
    """Return what a word means; a German one may have several parts."""
    word = word.replace(" ", "-")
    if word in WORDS[language]:
        return WORDS[language][word]
    for part, factor in (("tausend", 1000), ("hundert", 100)):
        before, found, behind = word.partition(part)
        if found:
            behind = behind.removeprefix("und")
            return (_value(before, "de") if before else 1) * factor + (_value(behind, "de") if behind else Fraction(0))
    if word.endswith("t"):  # of "Vierte"
        return _value(word[:-1], language)
    return _value(word.removesuffix("zehn"), language) + 10  # of "sechszehn"


ROMAN = re.compile(r"\b(?=[IVX])(X{0,3})(IX|IV|V?I{0,3})\b")
_ROMAN_UNITS = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
_SMALL_DIGIT = re.compile("[⁰¹²³⁴-⁹₀-₉]")


def in_words(text: str, language: str) -> set[Fraction]:
    """Return the numbers that a text may say in words: "two hundred" is 2, 100 and 200; months and "XIV" are some."""
    found: set[Fraction] = set()
    end, last = -1, Fraction(0)
    lower = text.lower()
    for match in _SPELLED[language].finditer(lower):
        value = _value(match[1], language)
        found.add(value)
        if match[1] in ("a", "an"):
            continue
        between = lower[end : match.start()] if end >= 0 else "x"
        if between.strip(" -") in _LINKS:
            is_factor = value >= 100 > last or value >= 1000
            last = last * value if is_factor else last + value if last > value else value  # 2 x 100, 100 + 2
            found.add(last)
        else:
            last = value
        end = match.end()
    found |= {
        value
        for one in said_numbers(text, language)
        if one.kind in ("words", "ordinal in words")
        for value in one.parts
    }
    found |= {Fraction(MONTH_NUMBERS[name[1]]) for name in re.finditer(rf"\b({MONTH})s?\b", text)}
    found |= {roman(match) for match in ROMAN.finditer(text)}
    return found | {Fraction(unicodedata.digit(one)) for one in _SMALL_DIGIT.findall(text)}


def roman(match: re.Match[str]) -> Fraction:
    """Return what a match of `ROMAN` means."""
    return Fraction(10 * len(match[1]) + _ROMAN_UNITS.index(match[2]))


_DAYS = {
    "en": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "de": ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"],
}
_CALENDAR = {language: [*days, *MONTHS[language]] for language, days in _DAYS.items()}
# What surely says something.  The first patterns find where it may be, fast.
_MAY_BE_SURE = {
    "en": re.compile(
        r" [\"'“(]?(?:tw[eio]|three|third|thirt|four|fort|fi[fv]|six|seve|eigh|nin[et]|ten|elev|half "
        r"|one (?:hund|thou|mill|bill)"
        r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:Septem|Octo|Novem|Decem)ber|(?:Jan|Febr)uary|Ju[nl]|A[pu][rg])"
    ),
    "de": re.compile(
        r" [\"'„(]?(?:zw[aeö]|drei|dritt|vier|fünf|sech|sieb|acht|neun|zehn|elf|halb |ein(?:und|hundert|tausend)"
        r"|(?:hundert|tausend)[a-zäöü]|(?:[DVFSN]|Ach|Zeh)[a-zü]{2,5}te"
        r"|(?:[Mm]on|[Dd]iens|[Dd]onners|[Ff]rei|[Ss]ams|[Ss]onn)(?:tag|abend)|[Mm]ittw|(?:Septem|Okto|Novem|Dezem)ber|Janu|Febr|März|April|Mai|Ju[nl]i)"
    ),
}
_TOKEN = _any_of(_ENGLISH | _TENS["en"])
_BIG = "hundred|thousand|million|billion"
_ORDINAL = _any_of(
    [one for one, n in WORDS["en"].items() if one.endswith(("th", "rd")) and 2 < n < 100 and "-" not in one]
)
_HOURS = {
    language: _any_of([word for word, number in words.items() if number <= 12])
    for language, words in {"en": _ENGLISH, "de": _GERMAN | {"eins": Fraction(1)}}.items()
}
# Not of a date; "may" and "march" are more often verbs, August is a name.
_NAME = {language: _any_of({*names} - {"March", "May", "August"}) for language, names in _CALENDAR.items()}
_NAME["de"] += "|Sonnabend|(?:mon|diens|donners|frei|sams|sonn)tag(?=s)|mittwoch(?=s)|sonnabend(?=s)"
_NO_DATE_BEFORE, _NO_DATE_BEHIND = r"(?<!\d )(?<!\d\. )(?<!(?:th|st|nd|rd) of )", r"(?! ?\d)"
_SURE = {
    "en": re.compile(
        rf"\b(?:(?:half past|(?<=\bat )half) (?P<half>{_HOURS['en']}|\d{{1,2}})"
        rf"|(?P<thirty>{_HOURS['en']})[- ]thirty)\b(?!-)"
        rf"|\b(?!one\b(?![ -](?:{_BIG})\b))(?P<words>(?:{_TOKEN})(?:(?:[ -]|(?:(?<=hundred)|(?<=thousand)) and )"
        rf"(?:{_TOKEN}|{_BIG}))*+)(?P<and_half> and a half)?+(?:[- ](?P<last>{_ORDINAL}|first|second))?+\b(?!-some)"
        rf"|\b(?:(?P<ordinal>{_ORDINAL})|(?P<decade>(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies)|(?P<times>twice))\b"
        rf"|{_NO_DATE_BEFORE}\b(?P<name>{_NAME['en']})s?\b{_NO_DATE_BEHIND}"
    ),
    "de": re.compile(
        rf"\b(?:halb (?P<half>{_HOURS['de']}|\d{{1,2}})|(?P<thirty>{_HOURS['de']}) Uhr dreißig)\b"
        r"|\b(?!(?:ein(?:s|mal)?|hundert|tausend)\b)"
        r"(?!acht\b(?! (?:[A-ZÄÖÜ]|von |oder |bis |und |\w+ [A-ZÄÖÜ]))(?<!um )(?<!bis )(?<!gegen ))"  # "gib acht!"
        rf"(?P<words>{_GERMAN_NUMBER})(?:(?P<and_half>einhalb)|(?P<last>s?te[nmrs]?)|(?P<times>mal)|(?<=ig)(?P<decade>ern?))?+\b"
        r"(?: (?P<scale>Million|Milliarde)(?:e?n)?\b)?+"
        r"|\b(?P<ordinal>[Dd]ritt|[Ss]iebt|Viert|Fünft|Sechst|Acht|Neunt|Zehnt)e[nmrs]?\b"
        rf"|{_NO_DATE_BEFORE}\b(?P<name>{_NAME['de']})(?:(?<=[ghd])(?:s|abend|morgen|nacht))?\b{_NO_DATE_BEHIND}"
    ),
}


def said_numbers(text: str, language: str) -> list[Number]:
    """Return what a text surely says in words: numbers but one, first and second, half hours, days and months."""
    seen = f" {text[:1].lower()}{text[1:]}"
    if _MAY_BE_SURE[language].search(seen) is None:
        return []
    found = list[Number]()
    for match in _SURE[language].finditer(seen):
        span = Span(match.start() - 1, match.end() - 1)
        if said := match["half"] or match["thirty"]:
            hour = int(said) if said.isdecimal() else int(_value(said.replace("eins", "ein"), language))
            hour -= language == "de" and match["half"] is not None
            clocks = [("clock", (3600 * hour + 1800 + half) % 86_400) for half in (0, 43_200)]
            found.append(Number(text[slice(*span)], span, "half hour", frozenset(clocks), (Fraction(hour),)))
        elif match["name"]:
            index = _CALENDAR[language].index(match["name"].capitalize().replace("Sonnabend", "Samstag"))
            found.append(Number(text[slice(*span)], span, "name", frozenset({("name", index)}), (Fraction(index),)))
        elif (value := _meaning(match, language)) is not None:
            kinds = {"ordinal": match["ordinal"] or match["last"], "decade": match["decade"], "times": match["times"]}
            kind = f"{next((kind for kind, said in kinds.items() if said), 'number')} in words"
            years = [1900, 2000] if kind == "decade in words" else []
            values = frozenset([("amount", value + year) for year in (0, *years)])
            found.append(Number(text[slice(*span)], span, kind, values, (value,)))
    return found


_LARGEST = 10**12  # "hundred hundred hundred ..."


def _meaning(match: re.Match[str], language: str) -> Fraction | None:
    """Return the number that words mean together; None: it is not clear."""
    words = match["words"] or match["ordinal"] or match["decade"] or match["times"]
    half = Fraction(1, 2) if match["and_half"] else 0
    if language == "de":
        return (_value(words.lower(), "de") + half) * (_value(match["scale"].lower(), "de") if match["scale"] else 1)
    total = last = Fraction(0)
    for word in [*re.split(" and |[ -]", words), *([match["last"]] if match["last"] else [])]:
        value = _value(word, "en")
        if last > _LARGEST:
            return None
        if value >= 1000:
            total, last = total + (last or 1) * value, Fraction(0)
        elif value == 100:
            last = (last or Fraction(1)) * 100
        elif last % 100 == 0 or (value < 10 and last % 10 == 0 and last % 100 >= 20):
            last += value
        elif 10 < last < 100 and value >= 10 and value != last:
            last = 100 * last + value  # nineteen eighty-four
        else:
            return None
    return total + last + half


KINDS = frozenset({"number in words", "ordinal in words", "decade in words", "times in words", "half hour", "name"})


def written_in_words(number: Number, language: str) -> str:
    """Return how English or German says a number of `said_numbers`."""
    (value,), words, is_english = number.parts, _BY_MEANING[language], language == "en"
    if number.kind == "name":
        return _CALENDAR[language][int(value)]
    if number.kind == "half hour":
        before, after = words[Fraction(value % 12 or 12)], words[Fraction(value % 12 + 1)]
        return f"half past {before}" if is_english else f"halb {'eins' if after == 'ein' else after}"
    if number.kind == "ordinal in words":
        return ordinal(int(value), language)
    whole = int(value)
    digits = f"{whole:,}".replace(",", separators(language)[1]) if whole > 9999 else f"{whole}"
    said = words.get(Fraction(whole), digits)
    forms = {"decade in words": (f"{digits}s", f"{digits}er"), "times in words": (f"{said} times", f"{said}mal")}
    english, german = forms.get(number.kind, (said, said))
    if value > whole:
        english, german = f"{said} and a half", f"{said}einhalb"
    return english if is_english else german


def half_hours(text: str, language: str) -> list[str]:
    """Return the half hours that a text says: "half past 5", "halb 6"."""
    return [one.text for one in said_numbers(text, language) if one.kind == "half hour"]


_WORD, _DIGITS = re.compile(r"\w+"), re.compile(r"\d+")


def unsaid_numbers(source: str, target: str, source_language: str, target_language: str) -> list[Number]:
    """Return what a source says in words and its translation neither in words nor in digits."""
    unsaid = said_numbers(source, source_language)
    if unsaid:  # most are said in the one word that is looked up here
        words = set(_WORD.findall(target))
        unsaid = [one for one in unsaid if words.isdisjoint((written_in_words(one, target_language), one.text))]
    for find in (_surely_said, _maybe_said):
        given = find(target, target_language) if unsaid else set()
        unsaid = [one for one in unsaid if given.isdisjoint(one.values)]
    return unsaid


def _surely_said(text: str, language: str) -> set[Value]:
    return {value for number in (*said_numbers(text, language), *numbers(text, language)) for value in number.values}


def _maybe_said(text: str, language: str) -> set[Value]:
    """Return what a text says in whatever word, as "samstags", "Septemberregen", or with its digits; takes time."""
    amounts = *in_words(text, language), *map(Fraction, _DIGITS.findall(text))
    lower = text.lower().replace("sonnabend", "samstag")
    names = {("name", index) for index, name in enumerate(_CALENDAR[language]) if name.lower() in lower}
    return {("amount", value) for value in amounts} | names
