"""No-break spaces come back where one of the words beside them has come back."""

import pytest

from service.text.normalization import with_no_break_spaces


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("It weighs 12_kg.", "Es wiegt 12 kg.", "Es wiegt 12_kg."),
        ("Ask Dr._Berg.", "Frag Dr. Berg.", "Frag Dr._Berg."),
        ("Mr._Berg is here.", "Herr Berg ist hier.", "Herr_Berg ist hier."),
        ("It took 3_hours.", "Es dauerte 3 Stunden.", "Es dauerte 3_Stunden."),
        ("It costs 1,500_euros.", "Es kostet 1.500 Euro.", "Es kostet 1.500_Euro."),
        ("See section_7.", "Siehe Abschnitt 7.", "Siehe Abschnitt_7."),
        ("Das sind 20_%.", "That is 20 %.", "That is 20_%."),
        ("Frau_Berg wiegt 60_kg.", "Ms. Berg weighs 60 kg.", "Ms._Berg weighs 60_kg."),
        ("5_m and 5_m", "5 m und 5 m", "5_m und 5_m"),
        ("I am here_now.", "Ich bin jetzt hier.", "Ich bin jetzt hier."),
        ("It weighs 12_kg.", "Es wiegt 12kg.", "Es wiegt 12kg."),
        ("_a_", "A B", "A B"),
    ],
)
def test_a_no_break_space_stands_where_a_neighbour_of_it_is(source, target, expected):
    for space in "\u00a0\u202f":
        assert with_no_break_spaces(source.replace("_", space), target) == expected.replace("_", space)
