"""Numbers of a source and its translation: what means the same, what does not, and how a language writes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.number_check import difference, quantity, rewritten
from service.text.numbers import numbers, separators, written, written_amount

SAME = {  # English, German
    "separators": [
        ("It costs 1,299.99.", "Es kostet 1.299,99."),
        ("3.14 or 0.5", "3,14 oder 0,5"),
        ("12,000 men", "12000 Männer"),
        ("1,000,000 cats", "1 000 000 Katzen"),
        ("5'000 francs", "5.000 Franken"),
        ("It is 0.500 long.", "Es ist 0,500 lang."),
        ("12,34,567 rupees", "1.234.567 Rupien"),
        ("2,4-dichlorophenol", "2,4-Dichlorphenol"),
        ("a 1,5 litre bottle", "eine 1,5-Liter-Flasche"),
        ("Add .5 ml.", "0,5 ml zugeben."),
    ],
    "other order": [
        ("In 1990, 12 men sold 5 cars.", "12 Männer verkauften 1990 5 Autos."),
        ("On 5/30/2024 at 7", "Um 7 am 30.5.2024"),
        ("page 7 of 12", "von 12 Seiten die 7."),
        ("2024-03-09", "9.3.2024"),
        ("5 of 5 and 6", "5 und 6 von 5"),
    ],
    "times of day": [
        ("at 5 p.m.", "um 17 Uhr"),
        ("at 5:30 pm", "um 17.30 Uhr"),
        ("at 12:15 am", "um 0:15 Uhr"),
        ("from 5 to 7 pm", "von 17 bis 19 Uhr"),
        ("at 8 o'clock", "um 20 Uhr"),
        ("at 8:30 pm", "abends um 8:30 Uhr"),
        ("at 12 pm", "um 12 Uhr"),
        ("half past 5", "halb 6"),
        ("at 5.30 p.m.", "um 17 Uhr 30"),
        ("at 9 a.m.", "um neun Uhr"),
        ("until midnight", "bis 0 Uhr"),
        ("from 19:30 on", "ab 19.30 h"),
        ("8:30 a.m.–6 p.m.", "8.30–18 Uhr"),
        ("0230 UTC", "02:30 UTC"),
    ],
    "words": [
        ("He is 2 years old.", "Er ist zwei Jahre alt."),
        ("two cats", "2 Katzen"),
        ("The 2nd edition", "Die zweite Auflage"),
        ("the 25 men", "die fünfundzwanzig Männer"),
        ("twenty-one days", "21 Tage"),
        ("a 12-year-old", "eine Zwölfjährige"),
        ("half a million people", "500.000 Menschen"),
        ("two hundred cars", "200 Autos"),
        ("1.5 hours", "anderthalb Stunden"),
        ("2 1/2 hours", "zweieinhalb Stunden"),
        ("3 times", "dreimal"),
        ("twice", "2-mal"),
        ("1 man", "ein Mann"),
        ("in the 1930s", "in den dreißiger Jahren"),
        ("in the 1960s", "in den 60er Jahren"),
        ("five degrees below zero", "-5 Grad"),
        ("Louis XIV", "Ludwig der 14."),
        ("seven of the twelve eggs", "sieben der zwölf Eier"),
        ("three hundred and forty chairs", "dreihundertvierzig Stühle"),
        ("two thousand five hundred euros", "zweitausendfünfhundert Euro"),
        ("He paid two thousand five hundred.", "Er zahlte 2500."),
        ("in nineteen eighty-four", "neunzehnhundertvierundachtzig"),
        ("the twenty-fourth of May", "der vierundzwanzigste Mai"),
        ("three and a half years", "dreieinhalb Jahre"),
        ("two million people", "2.000.000 Menschen"),
        ("Three-legged", "Dreibeinig"),
        ("a couple of men", "zwei Männer"),
        ("Be careful!", "Gib acht!"),
        ("twice a day, three times a week", "zweimal am Tag, dreimal pro Woche"),
        ("Twice as many", "Doppelt so viele"),
        ("in the seventies", "in den siebziger Jahren"),
        ("in the thirties", "in den 1930ern"),
        ("He came fourth.", "Er wurde Vierter."),
        ("number one hundred and twelve", "Nummer einhundertzwölf"),
        ("Once I was there.", "Ich war einmal dort."),
    ],
    "days and months": [
        ("on Saturday", "am Sonnabend"),
        ("every Monday evening in June", "jeden Montagabend im Juni"),
        ("November to March", "November bis März"),
        ("open on Tuesdays", "dienstags geöffnet"),
        ("on Black Friday", "am Black Friday"),
        ("in December 2024", "12/2024"),
        ("You may march on.", "Ihr dürft weitergehen."),
    ],
    "half hours": [
        ("at half past six", "um halb sieben"),
        ("Half past 7", "Halb 8"),
        ("We met at 7:30.", "Wir trafen uns um halb acht."),
        ("at half past five", "um 17.30 Uhr"),
        ("at six thirty", "um halb sieben"),
        ("at half past twelve", "um halb eins"),
        ("half past 5 on May 3", "am 3. Mai um halb 6"),
    ],
    "scales": [
        ("7,900,000,000 people", "7,9 Milliarden Menschen"),
        ("$5m", "5 Mio. Dollar"),
        ("2.5 million", "2.500.000"),
        ("12 to 16 thousand", "12.000 bis 16.000"),
        ("3 trillion", "3 Billionen"),
        ("5 m long", "5 m lang"),
    ],
    "dates with names": [
        ("Dec. 31, 2024", "31. Dezember 2024"),
        ("on the 3rd of May", "am 3. Mai"),
        ("March 5, 1990", "5.3.1990"),
        ("on October 7", "am 7.10. kam er"),
        ("May 2023", "Mai 2023"),
        ("the end of December 21st", "das Ende des 21. Dezembers"),
    ],
    "fractions and powers": [
        ("1/2 a cup", "½ Tasse"),
        ("1½ cups", "1,5 Tassen"),
        ("10² is 100", "10² ist 100"),
        ("3 km² of land", "3 Quadratkilometer Land"),
        ("5 m2", "5 m²"),
    ],
    "units": [
        ("250 ml of milk", "250 ml Milch"),
        ("the 100 m sprint", "der 100-Meter-Lauf"),
        ("5 kg and 6 kg", "5 und 6 kg"),
        ("30 mph", "30 Meilen pro Stunde"),
        ("a 27 in. screen", "ein 27 Zoll großer Schirm"),
        ("6 ft tall", "6 Fuß groß"),
        ("2 lbs of nuts", "2 Pfund Nüsse"),
        ("2 tbsp oil", "2 EL Öl"),
        ("3 h and 10 min", "3 Std. und 10 Min."),
        ("20 °C", "20 Grad"),
        ("5% of 8 GB", "5 Prozent von 8 Gigabyte"),
        ("100% sure", "hundertprozentig sicher"),
        ("$5 and €7", "5 Dollar und 7 Euro"),
        ("in 1998 EUR 500", "1998 500 Euro"),
        ("in the 1990s", "in den 1990ern"),
        ("85 m² large", "85 Quadratmeter groß"),
        ("$5 m", "5 Mio. Dollar"),
        ("40 ha or 99 px", "40 Hektar oder 99 Pixel"),
        ("3000 rpm and 2.5 bar", "3000 Umdrehungen und 2,5 bar"),
        ("150 hp", "150 PS"),
    ],
    "sections": [
        ("section 4.1", "Abschnitt 4.1"),
        ("See Fig. 2.3.", "Siehe Abb. 2.3."),
        ("version 13.6 is new", "Version 13.6. ist neu"),
        ("No. 5 is alive.", "Nr. 5 lebt."),
        ("bus number 7", "Bus Nr. 7"),
        ("line no 7", "Linie Nr. 7"),
    ],
    "other": [
        ("50% of 3-4", "50 % von 3–4"),
        ("0800 123 456", "0800/123456"),
        ("version 2.3.1", "Version 2.3.1"),
        ("No digits here.", "Keine Ziffern hier."),
        ("-5 degrees", "minus 5 Grad"),
        ("the 90-year-old", "die 90-Jährige"),
    ],
}
OTHER = {
    "digits are lost": [
        ("60,000,000 people", "60.000 Menschen"),
        ("100000 people", "1000 Menschen"),
        ("the code 445544", "der Code 44544"),
        ("2 1/2 hours", "2/2 Stunden"),
        ("the code 007", "der Code 7"),
        ("It has 24 rooms.", "Es hat Zimmer."),
        ("10² is 100", "10 ist 100"),
        ("10² is 100", "102 ist 100"),
        ("from gate B27", "ab Tor 27"),
        ("the A4 paper", "das Papier"),
    ],
    "digits are new": [
        ("two cats", "3 Katzen"),
        ("at 23:59", "um 23:59:59:59"),
        ("He came.", "Er kam 1998."),
        ("ext. 5555", "Durchwahl 55555"),
        ("5 cars", "5 Autos und 5 Räder"),
    ],
    "the format is another language's": [
        ("It costs 1,299 euros.", "Es kostet 1,299 Euro."),
        ("1.250 litres", "1.250 Liter"),
        ("It is 8:30.", "Es ist 8,30."),
        ("9:15 to 10:45 a.m.", "9,15 bis 10.45 Uhr"),
        ("7.9 billion", "7,9 Billionen"),
        ("31/12/2024 it ends", "31,12,2024 endet es"),
        ("2,4-dichlorophenol", "2.4-Dichlorphenol"),
        ("until 19,30 h", "bis 19.30 h"),
    ],
    "times and dates": [
        ("It is 12:15 am.", "Es ist 12:15 Uhr."),
        ("at 5 pm", "um 5 Uhr"),
        ("Dec 31, 2024", "31, 2024"),
        ("on May 3", "am 4. Mai"),
        ("2:15 pm", "14.25 Uhr"),
    ],
    "a section is written as an amount": [("section 4.1", "Abschnitt 4,1"), ("Fig. 2.3 shows", "Abb. 2,3 zeigt")],
    "words": [
        ("seven of the eggs", "acht der Eier"),
        ("thirty-six minutes", "vierzig Minuten"),
        ("two thousand five hundred euros", "dreitausend Euro"),
        ("forty thieves", "fünfzig Räuber"),
        ("twice", "dreimal"),
        ("in the seventies", "in den neunziger Jahren"),
        ("He came fourth.", "Er wurde Fünfter."),
        ("the fourteenth of July", "der vierte Juli"),
        ("three and a half years", "vier Jahre"),
        ("nine pears", "zehn Birnen"),
    ],
    "days and months": [("on Sunday", "am Dienstag"), ("from November on", "ab Oktober")],
    "half hours": [
        ("at half past seven", "um halb sieben"),
        ("half past 7", "halb 7"),
        ("at half past eight", "um 20 Uhr"),
        ("at 6:30", "um halb sechs"),
    ],
    "a point that begins a number": [("Add .5 ml.", "5 ml zugeben.")],
    "units": [("40 ha", "40 kn"), ("3000 rpm", "3000 dB"), ("420 ppm", "420 px"), ("5 mmol", "5 mol")],
    "signs": [("-5 degrees", "5 Grad"), ("It is -12 outside.", "Draußen sind es 12.")],
}


@pytest.mark.parametrize("kind", [*SAME, *OTHER])
def test_numbers_that_mean_the_same_are_no_difference_in_both_directions(kind):
    differs = kind in OTHER

    for english, german in {**SAME, **OTHER}[kind]:
        assert (difference(english, german, "en", "de") is not None) is differs, (english, german)
        assert (difference(german, english, "de-AT", "en_US") is not None) is differs, (german, english)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("It costs 1,299.99.", "en de", ["1.299,99"]),
        ("Es kostet 1.299,99.", "de en", ["1,299.99"]),
        ("12,500 and 3.5", "en fr", ["12\u202f500", "3,5"]),
        ("12 500,5 Kronor", "sv en", ["12,500.5"]),
        ("1 000 000 und 1998", "de en", ["1 000 000", "1998"]),
        ("um 8.30 Uhr", "de en", ["8:30"]),
        ("at 5:30 p.m.", "en de", ["17:30"]),
        ("at 12 am", "en de", ["0:00"]),
        ("Dec. 31st, 2024", "en de", ["31. Dezember 2024"]),
        ("am 3. März", "de en", ["3 March"]),
        ("am 7.10. um 9", "de en", ["7 October", "9"]),
        ("the 2nd and the 21st", "en de", ["2.", "21."]),
        ("Die 3. Auflage im 12. Jahr", "de en", ["3rd", "12th"]),
        ("31.12.2024 and 12/31/2024", "en de", ["31.12.2024", "12/31/2024"]),
        ("31.12.2024", "de en", ["31.12.2024"]),
        ("2 1/2, version 1.2.3", "en de", ["2 1/2", "1.2.3"]),
        ("12:30:45", "en de", ["12:30:45"]),
        ("3,5", "en de", ["3,5"]),  # no English number: nobody knows
    ],
)
def test_a_number_is_written_as_the_target_language_writes_it(text, languages, expected):
    source, target = languages.split()

    assert [written(one, source, target) for one in numbers(text, source)] == expected


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("$1,299.99", "en de", "$1.299,99"),
        ("1.299,95 €", "de en", "1,299.95 €"),
        ("£0.99", "en de", "£0,99"),
        ("€ 12.500", "de en", "€ 12,500"),
        ("¥1,200", "en sv", "¥1\u00a0200"),
        ("$1.2.3", "en de", "$1.2.3"),  # no amount
        ("#1,299", "en de", "#1,299"),  # no currency
        ("$1,299 to $1,499", "en de", "$1,299 to $1,499"),
        ("US$1,299", "en de", "US$1.299"),
        ("€4.2bn", "en de", "€4,2bn"),
        ("54,3233°", "de en", "54.3233°"),
        ("$1,299-$1,499", "en de", "$1.299-$1.499"),
        ("n = 1,204", "en de", "n = 1.204"),
        ("N = 12.500", "de en", "N = 12,500"),
        ("SD = 0.72", "en de", "SD = 0,72"),
        ("= 1,234.56", "en de", "= 1.234,56"),
        ("CI = 1.2-3.4", "en de", "CI = 1,2-3,4"),
        ("< 0.05", "en de", "< 0,05"),
        ("> 1,000", "en de", "> 1.000"),
        ("> 3.11", "en de", "> 3.11"),  # may be a version
        (">= 3.11", "en de", ">= 3.11"),
        ("AT&T", "en de", "AT&T"),
    ],
)
def test_an_amount_of_money_is_written_as_the_target_language_writes_it(text, languages, expected):
    assert written_amount(text, *languages.split()) == expected


@pytest.mark.parametrize(
    ("source", "target", "languages", "expected"),
    [
        ("auf 2.345.678.", "to 2.345.678.", "de en", "to 2,345,678."),
        ("Es wiegt 12,5 kg.", "It weighs 12,5 kg.", "de en", "It weighs 12.5 kg."),
        ("About 1,200 of 1,200.", "Rund 1,200 von 1.200.", "en de", "Rund 1.200 von 1.200."),
        ("Python 3.11 is new.", "Python 3.11 ist neu.", "en de", "Python 3.11 ist neu."),  # no amount
        ("12,5 mal 112,50", "12.5 times 112,50", "de en", "12.5 times 112.50"),
        ("It uses 6.5 A.", "Es braucht 6.5 A.", "en de", "Es braucht 6,5 A."),
        ("3.5 kg of it", "3.5 kg davon", "en de", "3,5 kg davon"),
        ("price: €2.49", "Preis: €2.49", "en de", "Preis: €2,49"),
        ("It falls at 9.81 m/s².", "Es fällt mit 9.81 m/s².", "en de", "Es fällt mit 9,81 m/s²."),
        ("am 2. Tag", "on the 2th day", "de en", "on the 2nd day"),
        ("im 11. und 23. Jahr", "in the 11st and 23th year", "de en", "in the 11th and 23rd year"),
        ("the 3rd", "der 3th", "en de", "der 3th"),
        ("1.200", "1.200", "de sv", "1\u00a0200"),
    ],
)
def test_what_a_model_copies_is_written_as_the_target_language_writes_it(source, target, languages, expected):
    assert rewritten(source, target, *languages.split()) == expected


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("250 ml of milk", "250 Milch", "en de"),
        ("40 ha", "40", "de en"),
        ("3000 rpm", "3000 Uhr", "en de"),
        ("420 ppm", "420 pp", "de en"),
        ("No. 5 is alive.", "Nein. 5 lebt.", "en de"),
        ("bus no. 7", "Bus 7", "en de"),
        ("2 mm thick", "2 m dick", "en de"),
        ("6.5 A", "6,5 Uhr", "en de"),
        ("30 mph", "30 km/h", "en de"),
        ("3 kg and 5 kg", "3 kg und 5", "en de"),
        ("it costs $5", "es kostet 5 €", "en de"),
        ("8 in wide", "8 in breit", "en de"),
        ("2 tbsp oil", "2 tbsp Öl", "en de"),
        ("250 ml Milch", "250 milk", "de en"),
        ("2 m Abstand", "2 in the distance", "de en"),
        ("500 g Mehl", "500 mil", "de en"),
        ("25 Min.", "25 mine", "de en"),
        ("3 Std.", "3 Std.", "de en"),
        ("55 Zoll", "55 zoll", "de en"),
        ("20 °C", "20", "de en"),
        ("1,5 l Saft", "1.5 m of juice", "de en"),
    ],
)
def test_a_unit_that_the_translation_lacks_is_a_difference(source, target, languages):
    found = difference(source, target, *languages.split())

    assert found is not None
    assert (found.missing, found.surplus, len(found.bare)) == ((), (), 1)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("1,250 ml milk", "en de", ("1,250 ml", "1.250 ml")),
        ("nur 3 Std. Fahrt", "de en", ("3 Std.", "3 h")),
        ("55 Zoll", "de en", ("55 Zoll", "55 in")),
        ("a 27-in. screen", "en de", ("27-in.", "27 Zoll")),
        ("2 EL Öl", "de en", ("2 EL", "2 tbsp")),
        ("5 miles", "en de", ("5", "5")),
        ("5 kg", "en fr", ("5", "5")),
    ],
)
def test_a_number_is_written_with_the_unit_behind_it(text, languages, expected):
    source, target = languages.split()

    (begin, end), form = quantity(text, numbers(text, source)[0], source, target)

    assert (text[begin:end], form) == expected


@settings(max_examples=100, deadline=None)
@given(
    whole=st.integers(1_000, 10**15),
    cents=st.none() | st.integers(0, 99),
    languages=st.permutations(["en", "de", "fr", "sv", "tr", "ja"]),
)
def test_an_amount_written_in_another_language_is_the_same_amount(whole, cents, languages):
    source, target = languages[:2]
    decimal, group = separators(source)
    text = f"{whole:,}".replace(",", group) + ("" if cents is None else f"{decimal}{cents:02}")

    (number,) = numbers(text, source)
    other = written(number, source, target)

    assert difference(text, other, source, target) is None
    assert difference(text, f"7{other}", source, target) is not None


@given(st.text("0123456789.,:/-–'½² \u00a0XVumhabpUhrJanMärz"))
def test_any_text_is_equal_to_itself(text):
    assert difference(text, text, "en", "en") is None
    assert difference(text, text, "de", "de") is None
    assert difference(text, text, "xx", "fr") is None
