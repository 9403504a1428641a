"""Whether a translation has the numbers of its source.

    difference("There were 60,000,000 people.", "Es gab 60.000 Menschen.", "en", "de")  # -> one missing, one too many

What numbers mean is compared, not how they are written.  Digits may be words in the other text ("2", "zwei").  A unit
beside a number ("250 ml") has to be in the translation, too, as a symbol or a word.  Of other languages than English
and German the words are not known here: with those, only digits are compared.

Pure.  A text without digits costs one search.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple, TypeAlias

from service.records import Span
from service.text.copied_words import damaged_codes
from service.text.languages import primary
from service.text.number_words import KINDS, LANGUAGES, half_hours, in_words, unsaid_numbers, written_in_words
from service.text.numbers import (
    GAP,
    Number,
    Value,
    numbers,
    ordinal,
    separators,
    written,
)

_DIGIT = re.compile(r"\d")
_MINUS = re.compile(r"\b(?:minus|negative|below|unter)\b", re.IGNORECASE)
_MOST_COMPARED = 100


class Difference(NamedTuple):
    """The numbers that only one of two texts has, and those that both have, but one without their unit."""

    missing: tuple[Number, ...]  # of the source
    surplus: tuple[Number, ...]  # of the translation
    bare: tuple[Number, ...] = ()  # of the source, whose unit the translation lacks


def difference(
    source: str, target: str, source_language: str, target_language: str, kept: Sequence[str] = ()
) -> Difference | None:
    """Return how the numbers and codes of a translation differ from those of its source; None: they do not.

    Those of `kept`, which stands in every translation as it is, do not count.
    """
    said, given = (without(source, kept), without(target, kept)) if kept else (source, target)
    damaged = damaged_codes(said, given, source_language, target_language)
    languages = primary(source_language), primary(target_language)
    is_known = languages[0] in LANGUAGES and languages[1] in LANGUAGES
    damaged += unsaid_numbers(said, given, *languages) if is_known else []
    if not (_DIGIT.search(source) or _DIGIT.search(target)):
        return Difference(tuple(damaged), ()) if damaged else None
    if is_known and "hal" in source and "hal" in target:
        said, given = (
            without(text, half_hours(text, language)) for text, language in zip((said, given), languages, strict=True)
        )
    bare = _without_units(source, target, *languages) if is_known and _QUANTITY.search(source) else ()
    missing, surplus = (_by_meaning if is_known else _by_digits)(said, given, *languages)
    return Difference((*damaged, *missing), surplus, bare) if damaged or missing or surplus or bare else None


def without(text: str, kept: Sequence[str]) -> str:
    """Return a text with blanks in place of parts of it."""
    for part in kept:
        text = text.replace(part, " " * len(part))
    return text


_Both: TypeAlias = tuple[tuple[Number, ...], tuple[Number, ...]]  # that are missing, and surplus


class _Part(NamedTuple):
    """What is left of a number that the other text does not have as it is."""

    value: Fraction | None  # None: nothing that could be said in another way
    owner: Number


def _by_meaning(source: str, target: str, source_language: str, target_language: str) -> _Both:
    """Compare texts in languages whose words for numbers are known."""
    missing, surplus = _unmatched(numbers(source, source_language), numbers(target, target_language))
    if not (missing or surplus) or max(len(missing), len(surplus)) > _MOST_COMPARED:
        return tuple(missing), tuple(surplus)
    left, right = _parts(missing), _parts(surplus)
    left, right = _without_pairs(left, right, f"{source}\n{target}")
    left = _without_words(left, target, target_language)
    right = _without_words(right, source, source_language)
    if left and right and _plain_digits(left) == _plain_digits(right) != "":
        return (), ()
    return _owners(missing, left), _owners(surplus, right)


def _unmatched(said: Sequence[Number], given: Sequence[Number]) -> tuple[list[Number], list[Number]]:
    """Return the numbers of each text that have no counterpart of the same meaning in the other one."""
    waiting: dict[Value, list[int]] = defaultdict(list)
    for index in range(len(given) - 1, -1, -1):
        for value in given[index].values:
            waiting[value].append(index)
    taken: set[int] = set()
    missing = []
    for number in said:
        for value in number.values:
            places = waiting.get(value, [])
            while places and places[-1] in taken:
                places.pop()
            if places:
                taken.add(places.pop())
                break
        else:
            missing.append(number)
    return missing, [number for index, number in enumerate(given) if index not in taken]


def _parts(side: Sequence[Number]) -> list[_Part]:
    """Return the parts of the numbers; a number without parts is one part."""
    parts = []
    for number in side:
        amounts = [value for _, value in sorted(number.values, key=str) if isinstance(value, Fraction)]
        values: Sequence[Fraction | None] = number.parts or amounts[:1] or [None]
        parts += [_Part(value, number) for value in values]
    return parts


def _without_pairs(left: list[_Part], right: list[_Part], texts: str) -> tuple[list[_Part], list[_Part]]:
    """Return what has no counterpart in the other text that may mean the same."""
    remaining, unpaired = list(right), []
    for part in left:
        pair = next((one for one in remaining if _may_be_same(part, one, texts)), None)
        if pair is None:
            unpaired.append(part)
        else:
            remaining.remove(pair)
    return unpaired, remaining


def _may_be_same(one: _Part, other: _Part, texts: str) -> bool:
    if one.value is None or other.value is None:
        return False
    low, high = sorted((one.value, other.value))
    is_clock, is_foreign = ([is_one(part.owner) for part in (one, other)] for is_one in (_is_clock, _is_foreign))
    if low == high:
        return not (all(is_clock) or all(is_foreign))
    if low == -high:
        return _MINUS.search(texts) is not None
    if high - low == 12 and high <= 24:  # "between 5 and 7 pm", "zwischen 17 und 19 Uhr"
        return not any(is_clock) and re.search(r"[pP]\.?[mM]\b", texts) is not None
    if high > 999 and low < 100:  # "the 1960s", "die 60er"; "'98"
        return high % 100 == low and re.search(rf"['’]{low}\b|\b{low}-?(?:s|er)", texts) is not None
    return False


def _is_clock(number: Number) -> bool:
    return number.kind == "clock"


def _is_foreign(number: Number) -> bool:
    """Whether a number is written as its language does not write numbers."""
    return number.kind == "number" and any(what == "written" for what, _ in number.values)


def _without_words(side: list[_Part], other_text: str, language: str) -> list[_Part]:
    """Return what the other text does not say in words either."""
    if not side:
        return side
    said = in_words(other_text, language)
    return [part for part in side if said.isdisjoint(_words_of(part, other_text))]


def _words_of(part: _Part, other_text: str) -> set[object]:
    """Return the numbers whose words would stand for a part: 30 for 1930, and 5 for -5 beside "below zero"."""
    sought: set[object] = {part.value, *(value for _, value in part.owner.values)}
    if part.value and part.value < 0 and _MINUS.search(other_text):
        sought.add(-part.value)
    if part.value and part.value > 999 and part.value % 10 == 0:
        sought.add(part.value % 100 or None)
    return sought


def _plain_digits(side: Sequence[_Part]) -> str:
    """Return the digits of whole numbers one after the other; empty where separators say more than the digits do."""
    text = "".join([part.owner.text for part in side])
    is_whole = all(part.owner.kind == "number" for part in side) and not re.search("[-−–.,]", text)
    return "".join(re.findall(r"\d", text)) if is_whole else ""


def _owners(side: Sequence[Number], left: Sequence[_Part]) -> tuple[Number, ...]:
    spans = {part.owner.span for part in left}
    return tuple([number for number in side if number.span in spans])


def _by_digits(source: str, target: str, *_: str) -> _Both:
    """Compare texts by their digits alone; what may be said in words, or on another clock, is no difference."""
    missing, surplus = _unmatched(_digits_only(source), _digits_only(target))
    if _joined(missing) == _joined(surplus):
        return (), ()
    for one in list(missing):
        other = next((other for other in surplus if _is_scaled(_joined([one]), _joined([other]))), None)
        if other is not None:
            missing.remove(one)
            surplus.remove(other)
    missing, surplus = ([one for one in side if len(_joined([one])) > 2] for side in (missing, surplus))
    if not (missing and surplus):  # round numbers may be words
        missing, surplus = ([one for one in side if _joined([one])[1:].strip("0")] for side in (missing, surplus))
    if _CHINESE_NUMBER.search(source + target):
        missing, surplus = [], []
    return tuple(missing), tuple(surplus)


_CHINESE_NUMBER = re.compile("[〇一二三四五六七八九十百千万億亿兆만억조]")


def _digits_only(text: str) -> list[Number]:
    runs = []
    for number in numbers(text, ""):
        for run in [number.text] if number.kind == "number" else re.findall(r"\d+", number.text):
            one = number._replace(text=run)
            runs.append(one._replace(values=frozenset({("digits", _joined([one]))})))
    return runs


def _joined(side: Sequence[Number]) -> str:
    """Return the digits of numbers, of any script, without separators and the zeros that begin a number."""
    digits = ["".join(str(unicodedata.digit(one)) for one in number.text if one.isdigit()) for number in side]
    return "".join(one.lstrip("0") for one in digits)


def _is_scaled(one: str, other: str) -> bool:
    """Whether one has but more zeros than the other, as 7,900,000,000 has more than "7.9 billion"."""
    short, long = sorted((one, other), key=len)
    return len(short) <= 3 and len(long) - len(short) >= 3 and long.rstrip("0") == short.rstrip("0")


# Units: symbols that stand beside numbers, and how the words for it begin.
_UNITS = r"""
No. Nr. no. nos. Nrn. | nummer number nos?(?=\W{0,2}\d) nr\.
kg | kilos?\b kilogram; g | gram; mg | milligram; t | ton
lb lbs Pfund | pound £; oz | ounce unze
l | lit[er]; ml | millilit; cl | [cz]entilit; dl | de[cz]ilit
km | kilomet; m mts | met[er] minut min\b million mio\b
cm | [cz]entimet; mm | millimet; km² km2 sqkm | square.kilomet quadratkilomet; m² m2 sqm qm | square.met quadratmet
ft | foot feet fuß ['’′]; in Zoll | inch ["”″]; yd | yard; mi | mile meile
mph | miles.(?:per|an) meilen.(?:pro|in); km/h kmh kph | kilomet\w+.(?:per|an|pro|in.der).(?:h|stu) stundenkilomet
°C | celsius centigrade grad degree; °F | fahrenheit grad degree; % | per.?cent (?:hundert)?prozent
€ EUR | euro; $ USD | dollar; £ GBP | pound pfund sterling; CHF | franken franc
W | watt; kW | kilowatt; MW | megawatt; kWh | kilowatt; V | volt; A | amp
kB KB | k(?:ilo)?byte; MB | megabyte; GB | gigabyte; TB | terabyte
px | pixel; dpi | dots punkt; ppm | parts teile; dB | de[cz]ibel; rpm U/min | rpm rev umdreh; bar | bar
ha | he[ck]tar; kn | knot knoten; PS hp | ps hp horse.?power pferdest; Nm | newton; kJ | kilojoule; kcal | kilo[ck]al
mAh | milliamp; mA | milliamp; hPa | he[ck]topas; kPa | kilopas; mol | mol; mmol | millimol; lm | lumen
Hz | hertz; kHz | kilohertz; MHz | megahertz; GHz | gigahertz
min Min | minut; h Std hr hrs | hour stund uhr; s Sek sec | second sekund
tbsp EL | table.?spoon esslöffel; tsp TL | tea.?spoon teelöffel
"""
_FOREIGN = {
    "en": ("Pfund", "Zoll", "Std", "Sek", "EL", "TL", "PS", "U/min", "Nr.", "Nrn.", "no."),
    "de": ("in", "hr", "hrs", "tbsp", "tsp", "hp", "bhp", "rpm", "No.", "no.", "nos."),
}
_LIKE_WORDS = "g", "t", "l", "m", "in", "V", "A", "W", "h", "s"
_WITH_POINT = "in", "ft", "lb", "lbs", "oz", "yd", "min", "Min", "Std", "hr", "hrs", "Sek", "sec"  # "3 Std."
_LISTED = rf"(?:{GAP}?(?:and|und|or|oder|to|bis|by|mal|[x×,–-]){GAP}?\d[\d.,]*+){{0,4}}"  # "5 and 6 kg"


_ROWS = [[part.split() for part in row.split(" | ")] for row in re.split("[;\n]", _UNITS.strip())]
_BY_SYMBOL = {symbol: number for number, (symbols, _) in enumerate(_ROWS) for symbol in symbols}
_ONLY_IF = {
    **dict.fromkeys(_ROWS[0][0], r"(?!)"),  # stand before numbers alone
    "in": rf"in(?=[,;.)×]|\s*\Z|{GAP}(?:x|by|wide|long|tall|high|deep|thick)\b)",
    "s": rf"(?<={GAP})s",  # not "the 1990s"
    **{name: rf"{name}(?!{GAP}?\d)" for name in ("EUR", "USD", "GBP", "CHF")},  # "in 1998 EUR 500"
}
_SYMBOL = "|".join(_ONLY_IF.get(one, re.escape(one)) for one in sorted(_BY_SYMBOL, key=len, reverse=True))
_BEHIND = re.compile(rf"(?:{GAP}|-)?(?:({_SYMBOL})(?![^\W_]|[²³]|[/^]\w|\.[A-Z])|([%€](?!\w)))")
_RATE = re.compile(rf"{GAP}(?:{_SYMBOL})(?:[/·]\w|[²³])")  # 9.81 m/s²
_MONEY = "€", "$", "£", "EUR", "USD", "GBP", "CHF"
_BEFORE = re.compile(rf"([€$£]|EUR|USD|GBP|CHF|(?<!\w)(?:N[or]\.|no\.)){GAP}?\Z")
# Where none of these is, there is no unit.
_QUANTITY = re.compile(rf"[\d¼-¾⅐-⅞]{_BEHIND.pattern}|(?:[€$£]|EUR|USD|GBP|CHF|[Nn][or]\.){GAP}?\d")
_LONGEST_BEFORE = 4  # characters


def _unit_behind(text: str, end: int) -> tuple[int, int] | None:
    """Return the row of the unit behind a number of a text, and where the unit ends."""
    if (behind := _BEHIND.match(text, end)) is None:
        return None
    symbol = behind[behind.lastindex or 0]
    return _BY_SYMBOL[symbol], behind.end() + (symbol in _WITH_POINT and text.startswith(".", behind.end()))


def _unit_before(text: str, begin: int) -> re.Match[str] | None:
    return _BEFORE.search(text, max(0, begin - _LONGEST_BEFORE), begin)


class _Unit(NamedTuple):
    """How a language says a unit."""

    symbol: str
    said: re.Pattern[str]
    behind: re.Pattern[str]  # a number, or the last one of a list


@cache
def _unit(row: int, language: str) -> _Unit:
    """Return how English or German says the unit of a row."""
    symbols, words = _ROWS[row]
    own = [symbol for symbol in symbols if symbol not in _FOREIGN[language]]
    begins, ends = r"(?<![^\W\d_])", r"(?![^\W_]|[²³])"
    if own[0] in _LIKE_WORDS:
        begins = rf"(?:(?<=\d)|(?<=\d{GAP})|(?<=\d-))"
    elif own[0] in "%€$£":
        begins = ends = ""
    said = rf"(?:{begins}(?:{'|'.join(map(re.escape, own))}){ends}|(?<![^\W\d_])(?:{'|'.join(words)}))"
    behind = rf"{_LISTED}(?:{GAP}|-)?{said}"
    return _Unit(own[0], re.compile(said, re.IGNORECASE), re.compile(behind, re.IGNORECASE))


def _without_units(source: str, target: str, source_language: str, target_language: str) -> tuple[Number, ...]:
    """Return the numbers of the source whose unit the translation lacks."""
    owners = defaultdict[int, list[Number]](list)
    for number in numbers(source, source_language)[:_MOST_COMPARED]:
        (begin, end), is_amount = number.span, number.kind in ("number", "fraction")
        unit = _unit_before(source, begin) or _BEHIND.match(source, end)
        if is_amount and unit:
            owners[_BY_SYMBOL[unit[unit.lastindex or 0]]].append(number)
    bare, given = list[Number](), list[Number]()
    for row, owned in owners.items():
        _, said, behind = _unit(row, target_language)
        if len(said.findall(target)) >= len(owned):
            continue
        given = given or numbers(target, target_language)[:_MOST_COMPARED]
        for number in owned:
            same = [one.span for one in given if one.values & number.values]
            if not any(behind.match(target, end) or said.search(target, max(0, at - 4), at) for at, end in same):
                bare.append(number)
    return tuple(bare)


def quantity(text: str, number: Number, source_language: str, target_language: str) -> tuple[Span, str]:
    """Return where a number of the source stands with its unit, and how the target language writes both."""
    languages, span = (primary(source_language), primary(target_language)), number.span
    if number.kind in KINDS:
        return span, written_in_words(number, languages[1])
    form = written(number, source_language, target_language)
    if number.kind not in ("number", "fraction") or not {*languages} <= LANGUAGES:
        return span, form
    if before := _unit_before(text, span.begin):
        sign = before[0] if before[1] in _MONEY else f"{_unit(_BY_SYMBOL[before[1]], languages[1]).symbol} "
        return Span(before.start(), span.end), sign + form
    if found := _unit_behind(text, span.end):
        return Span(span.begin, found[1]), f"{form} {_unit(found[0], languages[1]).symbol}"
    return span, form


def rewritten(source: str, target: str, source_language: str, target_language: str, spans: Sequence[Span] = ()) -> str:
    """Return a translation of the same length whose numbers are not written as the source's language writes them.

    Those are amounts that a model has copied ("1.234.567" in English), but no decimal point without a unit behind it,
    which may be one of a version or a section; and English ordinals with the ending of another number ("3th").
    """
    if primary(target_language) == "en":
        target = _ENGLISH_ORDINAL.sub(
            lambda match: match[0] if match[0] in source else ordinal(int(match[1]), "en"), target
        )
    decimal, group = separators(source_language)
    for number in numbers(source, source_language) if separators(target_language) != (decimal, group) else ():
        text, form = number.text, written(number, source_language, target_language)
        is_plain = number.kind == "number" and len(form) == len(text) and form != text
        begin, end = number.span
        has_unit = _unit_before(source, begin) or _unit_behind(source, end) or _RATE.match(source, end)
        if not (is_plain and (decimal == "," or group in text or has_unit)):
            continue
        if not any(text in source[begin:end] for begin, end in spans):
            copied = re.search(rf"(?<![\w.,]){re.escape(text)}(?!\d|[.,]\d)", target)
            target = target if copied is None else target[: copied.start()] + form + target[copied.end() :]
    return target


_ENGLISH_ORDINAL = re.compile(r"(?<![\w.,])(\d+)(?:st|nd|rd|th)\b")
