"""More pairs from the same text: which wording is taken, and that the corpus can be read back."""

import pytest

from model.tools.diversify import new_wording

KNOWN = ["The ship is bound for Finland."]


SHIP, VESSEL = "The ship is going to Finland.", "This vessel goes there."


@pytest.mark.parametrize(
    ("hypotheses", "known", "min_chrf", "taken"),
    [
        (["A vessel goes north.", SHIP, "Finland!"], KNOWN, 0, SHIP),  # the nearest
        ([SHIP, VESSEL], [*KNOWN, "The vessel goes there."], 0, VESSEL),  # to any reference
        ([SHIP, KNOWN[0]], KNOWN, 0, None),  # the model knows the reference
        ([SHIP], KNOWN, 40, SHIP),
        ([SHIP], KNOWN, 90, None),  # too far
    ],
)
def test_the_hypothesis_nearest_to_a_reference_is_taken(hypotheses, known, min_chrf, taken):
    assert new_wording(hypotheses, known, min_chrf) == taken
