"""Units beside numbers: their symbols and words in English and German.

    row_beside("It weighs 5 kg.", 10, 11)  # -> the row of "kg" in the table
    unit(row, "de").said                   # finds "kg", "Kilo", "Kilogramm"

Words are looked for in translations alone: beside numbers of a source only symbols are.  Pure.
"""

import re
from functools import cache
from typing import NamedTuple

from service.text.numbers import GAP

# Units: symbols that stand beside numbers, and how the words for it begin.
_UNITS = r"""
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
Hz | hertz; kHz | kilohertz; MHz | megahertz; GHz | gigahertz
min Min | minut; h Std hr hrs | hour stund uhr; s Sek sec | second sekund
tbsp EL | table.?spoon esslöffel; tsp TL | tea.?spoon teelöffel
"""
_FOREIGN = {"en": ("Pfund", "Zoll", "Std", "Sek", "EL", "TL"), "de": ("in", "hr", "hrs", "tbsp", "tsp")}
_LIKE_WORDS = "g", "t", "l", "m", "in", "V", "A", "W", "h", "s"
_WITH_POINT = "in", "ft", "lb", "lbs", "oz", "yd", "min", "Min", "Std", "hr", "hrs", "Sek", "sec"  # "3 Std."
_LISTED = rf"(?:{GAP}?(?:and|und|or|oder|to|bis|by|mal|[x×,–-]){GAP}?\d[\d.,]*+){{0,4}}"  # "5 and 6 kg"


_ROWS = [[part.split() for part in row.split(" | ")] for row in re.split("[;\n]", _UNITS.strip())]
_BY_SYMBOL = {symbol: number for number, (symbols, _) in enumerate(_ROWS) for symbol in symbols}
_ONLY_IF = {
    "in": rf"in(?=[,;.)×]|\s*\Z|{GAP}(?:x|by|wide|long|tall|high|deep|thick)\b)",
    "s": rf"(?<={GAP})s",  # not "the 1990s"
    **{name: rf"{name}(?!{GAP}?\d)" for name in ("EUR", "USD", "GBP", "CHF")},  # "in 1998 EUR 500"
}
_SYMBOL = "|".join(_ONLY_IF.get(one, re.escape(one)) for one in sorted(_BY_SYMBOL, key=len, reverse=True))
_BEHIND = re.compile(rf"(?:{GAP}|-)?(?:({_SYMBOL})(?![^\W_]|[²³]|[/^]\w|\.[A-Z])|([%€](?!\w)))")
_BEFORE = re.compile(rf"([€$£]|EUR|USD|GBP|CHF){GAP}?\Z")
QUANTITY = re.compile(
    rf"[\d¼-¾⅐-⅞]{_BEHIND.pattern}|(?:[€$£]|EUR|USD|GBP|CHF){GAP}?\d"
)  # where none is, there is no unit
_LONGEST_BEFORE = 4  # characters


def row_beside(text: str, begin: int, end: int) -> int | None:
    """Return the row of the unit that stands beside a number of a text."""
    match = _BEFORE.search(text, max(0, begin - _LONGEST_BEFORE), begin) or _BEHIND.match(text, end)
    return match and _BY_SYMBOL[match[match.lastindex or 0]]


def unit_behind(text: str, end: int) -> tuple[int, int] | None:
    """Return the row of the unit behind a number of a text, and where the unit ends."""
    if (behind := _BEHIND.match(text, end)) is None:
        return None
    symbol = behind[behind.lastindex or 0]
    return _BY_SYMBOL[symbol], behind.end() + (symbol in _WITH_POINT and text.startswith(".", behind.end()))


class Unit(NamedTuple):
    """How a language says a unit."""

    symbol: str
    said: re.Pattern[str]
    behind: re.Pattern[str]  # a number, or the last one of a list


@cache
def unit(row: int, language: str) -> Unit:
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
    return Unit(own[0], re.compile(said, re.IGNORECASE), re.compile(behind, re.IGNORECASE))
