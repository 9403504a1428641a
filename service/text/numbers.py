"""The numbers of a text: what those in digits mean, how another language writes them, and what words may say them.

    numbers("It costs 1,299.99.", "en")  # -> one, which is 1299.99, and "1.299,99" as German writes it

Amounts are read by the number format of the language, times of day on one clock, dates by day, month and year.  A word
may mean several things ("second", "acht" of "achten"): what is found of words is a number that a text may have said, so
that its digits are not reported as missing.
"""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple, TypeAlias

from service.records import Span
from service.text.alignment import edited
from service.text.languages import primary
from service.text.segments import between


def table(words: str) -> dict[str, Fraction]:
    """Return "one 1 two 2" as a dictionary."""
    items = words.split()
    return dict(zip(items[::2], map(Fraction, items[1::2]), strict=True))


def numbered(words: str, first: int = 1) -> dict[str, Fraction]:
    """Return "one two" as {"one": 1, "two": 2}."""
    return {word: Fraction(number) for number, word in enumerate(words.split(), start=first)}


# CLDR 47, decimal sign and sign between thousands of Latin digits.
_SEPARATORS = {
    language: (",", group)
    for group, languages in {
        ".": "ast az bs ca da de dsb el es eu fo fy gl hr hsb id is it jv kl ku lb lo mk nl pt ro sc sl sr tr vi",
        "\u00a0": "af be bg br cs et fi hu hy ht ka kk kea ky lt lv nb nn no pl ru sah se sk sq sv tg tk tt uk uz",
        "\u202f": "fr",
    }.items()
    for language in languages.split()
}


def separators(language: str) -> tuple[str, str]:
    """Return the decimal sign of a language, without script and region, and what it writes between thousands."""
    return _SEPARATORS.get(language, (".", ","))


MONTHS = {
    "en": numbered("January February March April May June July August September October November December", 1),
    "de": numbered("Januar Februar März April Mai Juni Juli August September Oktober November Dezember", 1),
}
SHORT_MONTHS = {
    "en": table("Jan 1 Feb 2 Mar 3 Apr 4 Jun 6 Jul 7 Aug 8 Sep 9 Sept 9 Oct 10 Nov 11 Dec 12"),
    "de": table("Jan 1 Jänner 1 Feb 2 Febr 2 Feber 2 Mrz 3 Apr 4 Jun 6 Jul 7 Aug 8 Sep 9 Sept 9 Okt 10 Nov 11 Dez 12"),
}
MONTH_NUMBERS = {
    name: number for table in (MONTHS, SHORT_MONTHS) for names in table.values() for name, number in names.items()
}
MONTH_NUMBERS |= {name.upper(): number for name, number in MONTH_NUMBERS.items()}  # not "may" and "march"
MONTH = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))

# What stands behind digits; the same word is a thousand times as much in German as in today's English.
SCALES = {
    "en": table(
        "hundred 1e2 thousand 1e3 million 1e6 millions 1e6 billion 1e9 billions 1e9 trillion 1e12 trillions 1e12"
        " bn 1e9 mn 1e6 tn 1e12 dozen 12 k 1e3 m 1e6"
    ),
    "de": table(
        "hundert 1e2 tausend 1e3 tsd 1e3 million 1e6 millionen 1e6 mio 1e6 milliarde 1e9 milliarden 1e9 mrd 1e9"
        " billion 1e12 billionen 1e12 bio 1e12 dutzend 12"
    ),
}
LETTER_SCALES = frozenset({"k", "m"})  # also metres, minutes, men

Value: TypeAlias = tuple[str, object]  # "amount", a fraction; "clock", seconds; "date", (day, month, year); ...

GAP = "[ \u00a0\u202f]"
_LONGEST_AMOUNT = 30  # digits; longer ones are codes
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


class Number(NamedTuple):
    """A number in a text that is written with digits."""

    text: str
    span: Span
    kind: str  # the name of its group in the pattern
    values: frozenset[Value]  # what it may mean
    parts: tuple[Fraction, ...] = ()  # each may stand elsewhere in the other text: of a date, an hour, a list


# How numbers are read.  What is a date is no clock, what is a clock is no amount.
_DAY = r"\d{1,2}(?!\d|[ \u00a0\u202f]\d{3}(?!\d))"
_YEAR = rf"(?:,?{GAP}\d{{4}}(?!\d))?"
_CLOCK_TIME = r"\d{1,2}(?:[:.][0-5]\d){0,2}"
_DATES = (
    rf"(?P<month_first>\b(?:{MONTH})s?\b\.?{GAP}{_DAY}(?:st|nd|rd|th|\.(?=[ ,]))?{_YEAR}(?![.,:]\d))"
    rf"|(?P<day_first>(?<![\d.,:/]){_DAY}(?:\.|st|nd|rd|th)?{GAP}(?:of{GAP})?(?:{MONTH})s?\b\.?{_YEAR})"
)
_REST = (
    r"(?P<date>(?<![\d.,:/-])(?:\d{1,2}(?:\.\d{1,2}\.|/\d{1,2}/|-\d{1,2}-)(?:\d{4}|\d\d)"
    r"|\d{4}(?:\.\d{1,2}\.|/\d{1,2}/|-\d{1,2}-)\d{1,2})(?!\d|[.,:/-]\d))"
    rf"|(?P<clock>(?<![\d.,:/]){_CLOCK_TIME}{GAP}?(?:HALVES|Uhr\b|o['’]clock\b)(?:{GAP}[0-5]\d(?!\d|[.,:]\d))?"
    rf"|(?<![\d.,:/])\d{{1,2}}[:.][0-5]\d(?={GAP}?(?:-|–|bis|to|und|and){GAP}?{_CLOCK_TIME}{GAP}?(?:HALVES|Uhr\b))"
    r"|(?<![\d.,:/])\d{1,2}(?::[0-5]\d){1,2}(?![\d:]))"
    rf"|(?P<fraction>(?<![\d.,:/])(?:\d{{1,3}}{GAP})?\d{{1,4}}/\d{{1,4}}(?![\d/])|(?:\d+{GAP}?)?[¼-¾⅐-⅞])"
    r"|(?P<code>(?<![\w-])(?!EUR|USD|GBP|CHF)[A-Z]{1,3}-?\d{1,4}(?!\w|[.,-]\d))"
    r"|(?P<number>(?<!\bm)(?<!\b[ckm]m)(?:(?<![\w.,)])[-−–](?=\.?\d))?"
    r"(?:\d{1,3}(?:[\u00a0\u202f '’]\d{3}(?!\d))+|(?<![\w.,)])\.?\d+|\d+)(?:[.,]\d+)*)"
    r"|(?P<power>(?<=\d)(?:[⁰¹²³⁴-⁹]+|\^\d+))"
)
_PATTERNS = {
    "en": re.compile(
        rf"{_DATES}|(?P<ordinal>(?<![\d.,])\d{{1,3}}(?:st|nd|rd|th)\b)|{_REST}".replace(
            "HALVES", r"[aApP]\.?[ \u00a0]?[mM]\b\.?(?![a-z])"
        )
    ),
    "de": re.compile(  # "am" is "on the"
        rf"{_DATES}|(?P<short_date>(?<![\d.,:/])\d{{1,2}}\.\d{{1,2}}\.(?!\d))"
        rf"|(?P<ordinal>(?<![\d.,:/])\d{{1,3}}\.(?= [^\W\d_]))|{_REST}".replace(
            "HALVES", r"(?:[pP]\.?[ \u00a0]?[mM]\b\.?|[aA]\.[ \u00a0]?[mM]\.|(?<=\d[.:]\d\d[ \u00a0])h\b)"
        )
    ),
    "": re.compile(_REST.replace("HALVES", r"[aApP]\.?[mM]\b\.?")),
}
_DIGIT = re.compile(r"[\d¼-¾⅐-⅞⁰¹²³⁴-⁹]")  # one of these is in each number
_MOST_BEFORE_DIGITS = 16  # "Septembers. 1"
_CLOCK = re.compile(rf"(\d{{1,2}})(?:[:.](\d\d))?(?:[:.](\d\d))?{GAP}?([aApP])?\D*(\d\d)?")
_SCALE = re.compile(  # "12 to 16 thousand": group 1 where another number comes first
    rf"({GAP}?(?:[-–]|to|or|and|bis|oder|und){GAP}?\d[\d.,]*+)?(?:{GAP}|-)?([^\W\d_]++)"
)
_SECTION = re.compile(  # "section 4.1" is no amount and no date
    r"\b(?:section|sec|chapter|chap|ch|figure|fig|table|tab|article|art|appendix|version|v|release|no|item|clause|step"
    r"|abschnitt|absatz|abs|kapitel|kap|abbildung|abb|tabelle|anhang|anlage|artikel|nr|punkt|ziffer|ziff|teil)s?\b\.?"
    rf"{GAP}\Z",
    re.IGNORECASE,
)
_LONGEST_SECTION = 14  # characters
_PART_OF_DAY = re.compile(  # which half of the day an hour without more is in
    r"\b(?:morning|afternoon|evening|tonight|night|noon|midday|midnight|morgens?|früh\w*|vormittags?|mittags?"
    r"|nachmittags?|abends?|nachts?|mitternacht)\b",
    re.IGNORECASE,
)


def numbers(text: str, language: str) -> list[Number]:
    """Return the numbers of a text that are written with digits, in order."""
    language = primary(language)
    pattern, found, place = _PATTERNS.get(language, _PATTERNS[""]), list[Number](), 0
    while digit := _DIGIT.search(text, place):  # far cheaper than the pattern, and most sentences have none
        match = pattern.search(text, max(place, digit.start() - _MOST_BEFORE_DIGITS))
        if match is None:
            break
        found.append(_number(match, language))
        place = match.end()
    return found


def _number(match: re.Match[str], language: str) -> Number:
    kind, text = match.lastgroup or "", match[0]
    values: set[Value]
    parts: Sequence[int] = ()
    if (
        kind in ("number", "short_date")
        and "." in text
        and _SECTION.search(match.string, max(0, match.start() - _LONGEST_SECTION), match.start())
    ):
        text = text.removesuffix(".")
        values = {value for value in _digits(text, language)[0] if "," in separators(language)[0] or value[0] == "list"}
        place = Span(match.start(), match.start() + len(text))
        return Number(text, place, "section", frozenset({("written", text), *values}))
    if kind == "number":
        values, parts = _amount(match, language)
    elif kind == "code":  # of a gate, a paper, a motorway: "B27", "A4"
        values = {("code", text.replace("-", ""))}
    elif kind == "power":
        values = {("power", text.translate(_RAISED).removeprefix("^"))}
    elif kind == "clock":
        values, parts = _clock(match)
    else:
        parts = [int(run) for run in re.findall(r"\d{1,4}", text)]
        if kind == "fraction":
            values = {("code", text) if re.search(r"/0+(?!\d)", text) else ("amount", _fraction(text))}
        elif kind == "ordinal":
            values = {("amount", Fraction(parts[0]))}
        else:
            values, parts = _date(text, parts)
    return Number(text, Span(*match.span()), kind, frozenset(values), tuple(map(Fraction, parts)))


def _date(text: str, digits: Sequence[int]) -> tuple[set[Value], Sequence[int]]:
    if name := re.search(rf"\b({MONTH})s?\b", text):
        digits = [digits[0], int(MONTH_NUMBERS[name[1]]), *digits[1:]]
    is_year_first = digits[0] > 99
    day, month, *year = reversed(digits) if is_year_first else digits
    is_clear = is_year_first or "." in text or name
    orders = [(day, month)] if is_clear else [(day, month), (month, day)]
    return {("date", (*order, *(one % 100 for one in year))) for order in orders}, (day, month, *year)


def _clock(match: re.Match[str]) -> tuple[set[Value], Sequence[int]]:
    """Return the seconds from midnight that a time of day may mean, and the hour, as it is written, if that is all."""
    read = _CLOCK.match(match[0])
    assert read is not None
    said, minute, second = (int(read[group] or 0) for group in (1, 2, 3))
    minute = minute or int(read[5] or 0)
    half = read[4] and read[4].lower()
    hour = said % 12 + 12 * (half == "p") if half else said
    hours = {hour % 24}
    near = max(0, match.start() - 40), match.end() + 40
    if not half and said <= 12 and ("clock" in match[0] or _PART_OF_DAY.search(match.string, *near)):
        hours.add((hour + 12) % 24)
    values: set[Value] = {("clock", 3600 * one + 60 * minute + second) for one in hours}
    return {*values, ("code", f"{hour:02}{minute:02}")}, () if minute or second else (said,)


def _fraction(text: str) -> Fraction:
    whole = Fraction(0)
    for part in text.split():
        if part[-1].isdecimal():
            whole += Fraction(part)
        else:
            whole += Fraction(part[:-1] or 0) + Fraction(unicodedata.numeric(part[-1])).limit_denominator(10)
    return whole


def _amount(match: re.Match[str], language: str) -> tuple[set[Value], Sequence[int]]:
    """Return what an amount means with the word behind it: "7.9 billion" is 7,900,000,000."""
    values, parts = _digits(match[0], language)
    scale = _SCALE.match(match.string, match.end())
    factor = SCALES.get(language, {}).get(scale[2].lower()) if scale else None
    if scale is None or not factor:
        return values, parts
    scaled: set[Value] = {(what, value * Fraction(factor)) for what, value in values if isinstance(value, Fraction)}
    is_sure = not scale[1] and scale[2].lower() not in LETTER_SCALES
    return (scaled or values, ()) if is_sure else ({*values, *scaled}, parts)


def _digits(text: str, language: str) -> tuple[set[Value], Sequence[int]]:
    """Return what digits with separators mean in a language; what it does not write so, another one may."""
    sign = -1 if text[0] in "-−–" else 1
    plain = re.sub(r"[ \u00a0\u202f'’]", "", text.lstrip("-−–"))
    plain = f"0{plain}" if plain[0] in ".," else plain
    if sum(map(str.isdecimal, plain)) > _LONGEST_AMOUNT or re.match(r"0\d{2,}$", plain):
        return {("code", re.sub(r"\D", "", plain))}, ()
    signs = (",", ".") if separators(language)[0] == "," else (".", ",")
    for decimal, group in (signs, signs[::-1]):
        if _of_format(decimal, group).fullmatch(plain):
            value = sign * Fraction(plain.replace(group, "").replace(decimal, "."))
            # A number in the format of neither language ("2,4-D" in English) equals only the same one and an amount.
            own = decimal == signs[0]
            values: set[Value] = {(f"amount {sign}", value) for sign in (signs if own else [decimal])}
            values.add(("amount", value) if own else ("written", plain))
            return values, (int(value),) if value.denominator == 1 else ()
    parts = [int(run) for run in re.findall(r"\d+", plain)]
    is_like_a_date = "," in plain and parts[-1] > 999  # "31,12,2024" is nothing that a language writes
    return {("list", tuple(parts))}, () if is_like_a_date else parts


@cache
def _of_format(decimal: str, group: str) -> re.Pattern[str]:
    decimal, group = re.escape(decimal), re.escape(group)
    thousands = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+|[1-9]\d?(?:{group}\d\d)+{group}\d{{3}}"  # Indian: 12,34,567
    return re.compile(rf"(?:{thousands}|\d+)(?:{decimal}\d+)?")


# How numbers are written.


def written(number: Number, source_language: str, target_language: str) -> str:
    """Return how the target language writes a number of the source; as it is where that is not plain."""
    source, target = primary(source_language), primary(target_language)
    if number.kind == "number":
        return _in_format(number.text, source, target)
    if target not in MONTHS or source not in MONTHS or source == target:
        return number.text
    if number.kind == "clock" and not re.search(r"\d[:.]\d\d[:.]", number.text):
        (digits,) = [str(value) for what, value in number.values if what == "code"]
        return f"{int(digits[:2])}:{digits[2:]}"  # the model says "Uhr" or does not
    if number.kind == "ordinal":
        return ordinal(int(number.parts[0]), target)
    if number.kind in ("month_first", "day_first", "short_date"):
        day, month, *year = [int(part) for part in number.parts]
        name = list(MONTHS[target])[month - 1]
        return " ".join([f"{day}. {name}" if target == "de" else f"{day} {name}", *map(str, year)])
    return number.text


# What stands beside numbers: "US$", "€…bn", "n ="; "> 3.11" may be a version.
_SIGNS = re.compile(
    r"(?:[A-Z]{0,3}[$¢-¥\u20a0-\u20cf](?:bn|[kmKM])?|°[CF]?|[-–/\s])*+(?<![-–/])"
    r"|(?:[^\W\d_]{1,2}[ \u00a0]?[=<>≤≥≈±]|[=≈±]|(?P<compared>[<>≤≥]))\s*[-–]?"
)


def written_amount(text: str, source_language: str, target_language: str) -> str:
    """Return how the target language writes an amount of money or of a formula ("n = 1,204"); the rest as it is."""
    found = numbers(text, source_language)
    if not found or any(number.kind != "number" for number in found):
        return text
    pieces = [text[slice(*piece)] for piece in between([number.span for number in found], 0, len(text))]
    rest = "".join(pieces).strip()
    signs = _SIGNS.fullmatch(rest)
    if signs is None or (signs["compared"] and not (found[0].text[0] == "0" or "," in text)):
        return text
    forms = [(number.span, written(number, source_language, target_language)) for number in found]
    return edited(text, forms).text


def ordinal(number: int, language: str) -> str:
    if language == "de":
        return f"{number}."
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _in_format(text: str, source_language: str, target_language: str) -> str:
    decimal, group = separators(source_language)
    text = f"0{text}" if text[0] == decimal else text
    thousands = rf"\d{{1,3}}(?:{re.escape(group) if group in '.,' else GAP}\d{{3}})+"
    if not re.fullmatch(rf"[-−–]?(?:{thousands}|\d+)(?:{re.escape(decimal)}\d+)?", text):
        return text
    whole, _, rest = text.partition(decimal)
    target_decimal, target_group = separators(target_language)
    whole = re.sub(re.escape(group) if group in ".," else GAP, target_group, whole)
    return whole + (target_decimal + rest if rest else "")
