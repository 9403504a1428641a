"""Pairs by rule: sentences of our own with prices, dates, times, units and addresses, written as either language does.

English and German only.  Knows no corpus.
"""

import random
from collections.abc import Callable

from model.corpus import Pair
from model.recipe import Languages

# Words of both languages, or an English and a German one in turn.
_LISTS = {
    "month": "January Januar February Februar March März April April May Mai June Juni July Juli August August "
    "September September October Oktober November November December Dezember",
    "day": "Monday Montag Tuesday Dienstag Wednesday Mittwoch Thursday Donnerstag Friday Freitag Saturday Samstag "
    "Sunday Sonntag",
    "weight": "kg kg g g kilograms Kilogramm grams Gramm tons Tonnen pounds Pfund",
    "length": "km km m m cm cm kilometers Kilometer meters Meter miles Meilen feet Fuß inches Zoll",
    "duration": "hours Stunden minutes Minuten seconds Sekunden days Tage weeks Wochen months Monate years Jahre",
    "limit": "GB GB MB MB kWh kWh km/h km/h °C °C °F °F liters Liter ml ml percent Prozent",
    "currency": "euros Euro dollars Dollar pounds Pfund francs Franken cents Cent yen Yen kronor Kronen",
    "name": "Anna Ben Carla David Elif Farid Greta Hannes Ines Jonas Katrin Liam Mona Nils Olga Paul Quentin Rosa "
    "Samir Tara Ulla Viktor Wanda Yusuf Zoe Smith Miller Schneider Novak Rossi Kowalski García Nguyen Dubois O'Brien",
    "word": "shop mail news blog docs team data cloud help info support sales office travel music photo north garden",
}
_WORDS_OF = {name: text.split() for name, text in _LISTS.items()}
_NAMES, _WORDS = _WORDS_OF["name"], _WORDS_OF["word"]
_ENDS = ("com", "org", "net", "de", "eu", "io")

# {price}: an amount of money, {p}: a name, and so on as in `_SLOTS`; a number at the end tells two of a kind apart.
_SENTENCES = (
    ("The ticket costs {price}.", "Die Fahrkarte kostet {price}."),
    ("I paid {price} for it.", "Ich habe {price} dafür bezahlt."),
    ("The price fell from {price} to {price2}.", "Der Preis fiel von {price} auf {price2}."),
    ("It only costs {price} instead of {price2}.", "Es kostet nur {price} statt {price2}."),
    ("That makes {price} in total.", "Das macht insgesamt {price}."),
    ("{p} owes me {price}.", "{p} schuldet mir {price}."),
    ("Your balance is {price}.", "Ihr Guthaben beträgt {price}."),
    ("Shipping is free for orders over {price}.", "Ab einem Bestellwert von {price} ist der Versand kostenlos."),
    ("The rent is {price} a month.", "Die Miete beträgt {price} im Monat."),
    ("He was born on {date}.", "Er wurde am {date} geboren."),
    ("The meeting is on {date} at {time}.", "Die Besprechung ist am {date} um {time}."),
    ("Please reply by {date}.", "Bitte antworten Sie bis zum {date}."),
    ("The offer ends on {date}.", "Das Angebot endet am {date}."),
    ("We have been open since {date}.", "Wir haben seit dem {date} geöffnet."),
    ("From {date} to {date2} we are closed.", "Vom {date} bis zum {date2} haben wir geschlossen."),
    ("See you on {day}!", "Bis {day}!"),
    ("{p} is coming on {day} at {time}.", "{p} kommt am {day} um {time}."),
    ("The train leaves at {time}.", "Der Zug fährt um {time} ab."),
    ("The shop is open from {time} to {time2}.", "Der Laden ist von {time} bis {time2} geöffnet."),
    ("It is {time}.", "Es ist {time}."),
    ("Call me after {time}.", "Ruf mich nach {time} an."),
    ("The parcel weighs {weight}.", "Das Paket wiegt {weight}."),
    ("It is {length} from here to the station.", "Von hier bis zum Bahnhof sind es {length}."),
    ("We need {weight} of it.", "Wir brauchen {weight} davon."),
    ("It takes {duration}.", "Es dauert {duration}."),
    ("The limit is {limit}.", "Die Grenze beträgt {limit}."),
    ("Sales rose by {percent} in {year}.", "Der Umsatz stieg {year} um {percent}."),
    ("{percent} of the users agreed.", "{percent} der Benutzer stimmten zu."),
    ("You save {percent} today.", "Sie sparen heute {percent}."),
    ("About {number} people live here.", "Hier leben etwa {number} Menschen."),
    ("The city has {million} inhabitants.", "Die Stadt hat {million} Einwohner."),
    ("The file has {number} lines.", "Die Datei hat {number} Zeilen."),
    ("Order {code} was shipped on {date}.", "Die Bestellung {code} wurde am {date} verschickt."),
    ("Write to {mail} or visit {url}.", "Schreiben Sie an {mail} oder besuchen Sie {url}."),
    ("You can find more at {url}.", "Mehr dazu finden Sie unter {url}."),
    ("Send the invoice to {mail}.", "Schicken Sie die Rechnung an {mail}."),
    ("{p}'s address is {mail}.", "Die Adresse von {p} lautet {mail}."),
    ("Hello {slot}, your code is {code}.", "Hallo {slot}, Ihr Code lautet {code}."),
    ("{slot} has sent you a message.", "{slot} hat Ihnen eine Nachricht geschickt."),
    ("The file {path} was not found.", "Die Datei {path} wurde nicht gefunden."),
    ("Open {path} and change line {small}.", "Öffnen Sie {path} und ändern Sie Zeile {small}."),
    ("Do you want to delete {slot}?", "Möchten Sie {slot} löschen?"),
    ("{p} and {p2} live in the same house.", "{p} und {p2} wohnen im selben Haus."),
    ("Have you seen {p}?", "Hast du {p} gesehen?"),
    ("{p} gave {p2} a book.", "{p} hat {p2} ein Buch geschenkt."),
    ("My phone number is {phone}.", "Meine Telefonnummer ist {phone}."),
    ("Turn to page {small}.", "Schlagen Sie Seite {small} auf."),
    ("{small} + {small2} is more than {small3}.", "{small} + {small2} ist mehr als {small3}."),
    ("Flight {code} leaves at {time}.", "Flug {code} startet um {time}."),
)

Slot = tuple[str, str]  # as English and as German writes it


def generate_pairs(count: int, languages: Languages, seed: int) -> list[Pair]:
    """Return pairs of sentences whose slots are filled at random; the same seed gives the same pairs.

    Raises:
        ValueError: the languages are not English and German.
    """
    if {languages.source, languages.target} != {"en", "de"}:
        raise ValueError(
            f"augmentation.templates are English and German, the recipe is {languages.source} to {languages.target}"
        )
    rng = random.Random(seed)
    filled = (_fill(rng.choice(_SENTENCES), rng) for _ in range(count))
    return [Pair(*sides) if languages.source == "en" else Pair(*reversed(sides)) for sides in filled]


def _fill(sentence: Slot, rng: random.Random) -> Slot:
    english, german = sentence
    for name, fill in _SLOTS.items():
        for slot in (f"{{{name}}}", f"{{{name}2}}", f"{{{name}3}}"):
            if slot in english:
                in_english, in_german = fill(rng)
                english, german = english.replace(slot, in_english), german.replace(slot, in_german)
    return english.replace("..", "."), german  # "at 5 p.m." ends a sentence


def _figures(value: float, decimals: int) -> Slot:
    """12345.6 as `12,345.6` and `12.345,6`."""
    english = f"{value:,.{decimals}f}"
    return english, english.translate(str.maketrans(",.", ".,"))


def _amount(rng: random.Random) -> float:
    return rng.choice((rng.randint(2, 99), rng.randint(100, 9_999), rng.randint(10_000, 2_000_000)))


def _drawn(name: str, rng: random.Random) -> Slot:
    """An English word of that list, and the German one behind it."""
    words = _WORDS_OF[name]
    at = 2 * rng.randrange(len(words) // 2)
    return words[at], words[at + 1]


def _number(rng: random.Random) -> Slot:
    return _figures(_amount(rng), 0)


def _price(rng: random.Random) -> Slot:
    whole = rng.randint(2, rng.choice((60, 999, 90_000)))
    cents = rng.choice((0.99, 0.5, 0.95, rng.randint(1, 99) / 100))
    english, german = _figures(whole, 0) if rng.random() < 0.5 else _figures(whole + cents, 2)
    if rng.random() < 0.35:
        unit, einheit = _drawn("currency", rng)
        return f"{english} {unit}", f"{german} {einheit}"
    sign = rng.choice("€€$$£¥")
    return (f"{english} {sign}" if rng.random() < 0.1 else f"{sign}{english}"), f"{german} {sign}"


def _date(rng: random.Random) -> Slot:
    month, monat = _drawn("month", rng)
    day = rng.randint(1, 28)
    year = rng.choice(("", f" {rng.randint(1900, 2040)}"))
    english = rng.choice((f"{month} {day}{',' * bool(year)}{year}", f"{day} {month}{year}"))
    return english, f"{day}. {monat}{year}"


def _time(rng: random.Random) -> Slot:
    hour, minute = rng.randint(1, 23), rng.choice((0, 0, 15, 30, 45, rng.randint(1, 59)))
    german = f"{hour}:{minute:02} Uhr" if minute else f"{hour} Uhr"
    if rng.random() < 0.3:
        return f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr"
    half = rng.choice(("a.m. p.m.", "am pm", "AM PM")).split()[hour >= 12]
    english = f"{(hour - 1) % 12 + 1}" + (f":{minute:02}" if minute else "")
    return f"{english} {half}", german


def _measure(units: str, rng: random.Random) -> Slot:
    (english, german), (unit, einheit) = _decimal(500, rng), _drawn(units, rng)
    return f"{english} {unit}", f"{german} {einheit}"


def _decimal(highest: int, rng: random.Random) -> Slot:
    whole = rng.randint(2, highest)
    return _figures(whole, 0) if rng.random() < 0.65 else _figures(whole + rng.randint(1, 9) / 10, 1)


def _percent(rng: random.Random) -> Slot:
    english, german = _decimal(99, rng)
    return f"{english}%", f"{german} %"


def _million(rng: random.Random) -> Slot:
    english, german = _decimal(90, rng)
    return f"{english} million", f"{german} Millionen"


def _same(text: str) -> Slot:
    return text, text


def _name(rng: random.Random) -> Slot:
    return _same(rng.choice(_NAMES))


def _host(rng: random.Random) -> str:
    return f"{rng.choice(_WORDS)}{rng.choice(('', '-', '.'))}{rng.choice(_WORDS)}.{rng.choice(_ENDS)}"


def _url(rng: random.Random) -> Slot:
    tail = rng.choice(("", "/", f"/{rng.choice(_WORDS)}", f"/{rng.choice(_WORDS)}?id={rng.randint(1, 9_999)}"))
    return _same(rng.choice(("https://", "https://www.", "www.")) + _host(rng) + tail)


def _mail(rng: random.Random) -> Slot:
    name = rng.choice(_NAMES).lower().replace("'", "")
    return _same(f"{name}{rng.choice(('', '.', '_'))}{rng.choice(_WORDS)}@{_host(rng)}")


def _placeholder(rng: random.Random) -> Slot:
    word = rng.choice(_WORDS)
    forms = ("%s", "%d", "%1$s", f"%({word})s", f"{{{word}}}", f"{{{{{word}}}}}", f"${{{word}}}", f"<b>{word}</b>")
    return _same(rng.choice(forms))


def _code(rng: random.Random) -> Slot:
    letters, number = "".join(rng.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=2)), rng.randint(10, 9_999)
    return _same(rng.choice((f"#{number}", f"{letters}-{number}", f"{letters}{number}")))


def _path(rng: random.Random) -> Slot:
    top, name = rng.choices(_WORDS, k=2)
    return _same(
        rng.choice((f"{top}_{name}.txt", f"/etc/{top}/{name}.conf", f"C:\\{top}\\{name}", f"~/{top}.py", f"[{top}]"))
    )


def _phone(rng: random.Random) -> Slot:
    return _same(
        rng.choice(
            (f"+49 30 {rng.randint(100_000, 999_999)}", f"0{rng.randint(100, 999)} {rng.randint(10_000, 99_999)}")
        )
    )


_SLOTS: dict[str, Callable[[random.Random], Slot]] = {
    "price": _price,
    "date": _date,
    "day": lambda rng: _drawn("day", rng),
    "time": _time,
    "weight": lambda rng: _measure("weight", rng),
    "length": lambda rng: _measure("length", rng),
    "duration": lambda rng: _measure("duration", rng),
    "limit": lambda rng: _measure("limit", rng),
    "percent": _percent,
    "number": _number,
    "million": _million,
    "year": lambda rng: _same(str(rng.randint(1900, 2040))),
    "small": lambda rng: _same(str(rng.randint(2, 200))),
    "p": _name,
    "mail": _mail,
    "url": _url,
    "slot": _placeholder,
    "code": _code,
    "path": _path,
    "phone": _phone,
}
