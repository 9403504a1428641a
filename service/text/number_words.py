"""How languages write amounts, and how English and German say numbers, months and scales in words.

Pure tables.  A word may mean several things ("second", "acht" of "achten"): what is found here is a number that a text
may have said in words, so that nobody misses its digits.
"""

import re
from collections.abc import Iterator


def _table(words: str) -> dict[str, float]:
    """Return "one 1 two 2" as a dictionary."""
    items = words.split()
    return dict(zip(items[::2], map(float, items[1::2]), strict=True))


def _numbered(words: str, first: int) -> dict[str, float]:
    return {word: float(number) for number, word in enumerate(words.split(), start=first)}


# CLDR 47, decimal sign and sign between thousands of Latin digits.
_SEPARATORS = {
    language: signs
    for signs, languages in {
        (
            ",",
            ".",
        ): "ast az bs ca da de dsb el es eu fo fy gl hr hsb id is it jv kl ku lb lo mk nl pt ro sc sl sr tr vi",
        (
            ",",
            "\u00a0",
        ): "af be bg br cs et fi hu hy ht ka kk kea ky lt lv nb nn no pl ru sah se sk sq sv tg tk tt uk uz",
        (",", "\u202f"): "fr",
    }.items()
    for language in languages.split()
}


def separators(language: str) -> tuple[str, str]:
    """Return the decimal sign of a language, without script and region, and what it writes between thousands."""
    return _SEPARATORS.get(language, (".", ","))


MONTHS = {
    "en": _numbered("January February March April May June July August September October November December", 1),
    "de": _numbered("Januar Februar März April Mai Juni Juli August September Oktober November Dezember", 1),
}
MONTH_NUMBERS = {
    **MONTHS["en"],
    **MONTHS["de"],
    **_table(
        "Jan 1 Jänner 1 Feb 2 Mar 3 Mrz 3 Apr 4 Jun 6 Jul 7 Aug 8 Sep 9 Sept 9 Oct 10 Okt 10 Nov 11 Dec 12 Dez 12"
    ),
}
MONTH_NUMBERS |= {name.upper(): number for name, number in MONTH_NUMBERS.items()}  # not "may" and "march"
MONTH = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))

# What stands behind digits; the same word is a thousand times as much in German as in today's English.
SCALES = {
    "en": _table(
        "hundred 1e2 thousand 1e3 million 1e6 millions 1e6 billion 1e9 billions 1e9 trillion 1e12 trillions 1e12"
        " bn 1e9 mn 1e6 tn 1e12 dozen 12 k 1e3 m 1e6"
    ),
    "de": _table(
        "hundert 1e2 tausend 1e3 tsd 1e3 million 1e6 millionen 1e6 mio 1e6 milliarde 1e9 milliarden 1e9 mrd 1e9"
        " billion 1e12 billionen 1e12 bio 1e12 dutzend 12"
    ),
}
LETTER_SCALES = frozenset({"k", "m"})  # also metres, minutes, men

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_ENGLISH_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"
    " fifteenth sixteenth seventeenth eighteenth nineteenth"
)
_GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
    " achtzehn neunzehn"
)


def _english() -> Iterator[dict[str, float]]:
    units, ordinals = _numbered(_ENGLISH, 0), _numbered(_ENGLISH_ORDINALS, 0)
    yield units
    yield ordinals
    for word, ten in _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 2).items():
        yield dict.fromkeys((word, f"{word[:-1]}ieth", f"{word[:-1]}ies"), 10 * ten)
        yield {f"{word}-{unit}": 10 * ten + number for unit, number in (units | ordinals).items() if 0 < number < 10}
    yield _table(
        "a 1 an 1 another 1 once 1 single 1 twice 2 double 2 both 2 pair 2 couple 2 twin 2 triple 3 half 0.5"
        " quarter 0.25 dozen 12 decade 10 fortnight 14 noon 12 midnight 0 hundred 1e2 hundredth 1e2 thousand 1e3"
        " thousandth 1e3 million 1e6 billion 1e9 trillion 1e12"
    )


def _german() -> Iterator[dict[str, float]]:
    units = _numbered(_GERMAN, 0)
    stems = {("ein" if word == "eins" else word): number for word, number in units.items() if number}
    yield units | stems
    for word, ten in _numbered("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig", 2).items():
        yield {word: 10 * ten}
        yield {f"{unit}und{word}": 10 * ten + number for unit, number in stems.items() if number < 10}
    yield {f"{unit}hundert": 100 * number for unit, number in stems.items() if number < 10}
    yield {f"{unit}tausend": 1000 * number for unit, number in stems.items()}
    yield {f"{unit}einhalb": number + 0.5 for unit, number in stems.items()}
    yield _table(
        "erst 1 dritt 3 siebt 7 anderthalb 1.5 halb 0.5 hälfte 0.5 viertel 0.25 dreiviertel 0.75 doppel 2 doppelt 2"
        " beide 2 paar 2 zwo 2 dutzend 12 mittag 12 jahrzehnt 10 mitternacht 0 hundert 1e2 tausend 1e3"
        " million 1e6 milliarde 1e9 billion 1e12"
    )


def _merged(tables: Iterator[dict[str, float]]) -> dict[str, float]:
    return {word: number for table in tables for word, number in table.items()}


WORDS = {"en": _merged(_english()), "de": _merged(_german())}
# What may stand behind a German number in one word: zweite, dreijährig, viermal, Millionen.
_GERMAN_ENDS = (
    r"(?:s?te[nmrs]?|e[nmrs]?|[nrt]|s?tens|s?tel[ns]?|el[ns]?|erlei"
    r"|(?:mal|fach|stündig|jährig|tägig|wöch|monatig|stöckig|teilig|köpfig|minütig|seitig|türig|stellig|prozentig)\w*)?"
)


def _any_of(language: str) -> str:
    return "|".join(sorted(WORDS[language], key=len, reverse=True)).replace("-", "[- ]")


SPELLED = {  # group 1: the word
    "en": re.compile(rf"\b({_any_of('en')})(?:s|fold)?\b", re.IGNORECASE),
    "de": re.compile(rf"\b({_any_of('de')}){_GERMAN_ENDS}\b", re.IGNORECASE),
}
