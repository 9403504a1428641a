"""What is in a paragraph: neighbours that look alike are one."""

from hypothesis import given
from hypothesis import strategies as st

from service.documents.inline_content import Atom, Container, Format, Point, Text, joined

FORMATS = [Format(key) for key in ("", "bold", "alone")]
PLACES = st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)))
TEXTS = st.builds(Text, st.sampled_from(FORMATS), st.sampled_from([" ", "\n", "a", "b c"]), PLACES)
POINTS = st.builds(Point, PLACES, st.sampled_from(["", "", "1"]), st.booleans())
ATOMS = st.lists(st.one_of(TEXTS, TEXTS, POINTS, st.just(Container((), [], ()))), max_size=12)
SPACES = {" ", "\n"}


def joined_one_by_one(atoms: list[Atom]) -> list[Atom]:
    """The slow twin: copies what is joined with each neighbour."""
    done: list[Atom] = []
    for atom in atoms:
        last = done[-1] if done else None
        if (
            isinstance(atom, Text)
            and isinstance(last, Text)
            and (atom.format.key == last.format.key or atom.text in SPACES or last.text in SPACES)
        ):
            form = atom.format if last.text in SPACES else last.format
            done[-1] = Text(form, last.text + atom.text, last.source + atom.source)
        elif isinstance(atom, Point) and isinstance(last, Point) and last.is_unseen and atom.is_unseen:
            done[-1] = last._replace(source=last.source + atom.source)
        else:
            done.append(atom)
    return done


@given(ATOMS)
def test_neighbours_are_joined_in_one_pass_as_one_by_one(atoms):
    assert joined(atoms) == joined_one_by_one(atoms)


def test_text_that_is_empty_is_left_out():
    assert joined([Text(FORMATS[0], ""), Text(FORMATS[1], "a"), Text(FORMATS[0], "")]) == [Text(FORMATS[1], "a")]
