"""What is in a paragraph: neighbours that look alike are one."""

from hypothesis import given
from hypothesis import strategies as st

from service.documents.inline import Atom, Format, Mark, Text, joined
from service.text.document import TagKind

FORMATS = [Format(key) for key in ("", "bold", "alone")]
PLACES = st.tuples(st.tuples(st.integers(0, 4), st.integers(5, 9)))  # apart from each other
TEXTS = st.builds(Text, st.sampled_from(FORMATS), st.sampled_from([" ", "\n", "a", "b c"]), PLACES)
MARKS = st.builds(
    Mark,
    st.sampled_from(TagKind),
    st.just(""),
    id=st.just(0),
    shows=st.sampled_from(["", "", "1"]),
    is_break=st.booleans(),
    pieces=PLACES,
    format=st.none(),
    field_part=st.sampled_from(["", "", "begin"]),
)
ATOMS = st.lists(st.one_of(TEXTS, TEXTS, MARKS), max_size=12)
SPACES = {" ", "\n"}


def is_unseen(mark: Mark) -> bool:
    return mark.kind is TagKind.POINT and not (mark.shows or mark.is_break or mark.field_part)


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
        elif isinstance(atom, Mark) and isinstance(last, Mark) and is_unseen(last) and is_unseen(atom):
            done[-1] = last._replace(pieces=last.pieces + atom.pieces)
        else:
            done.append(atom)
    return done


@given(ATOMS)
def test_neighbours_are_joined_in_one_pass_as_one_by_one(atoms):
    assert joined(atoms) == joined_one_by_one(atoms)


def test_text_that_is_empty_is_left_out():
    assert joined([Text(FORMATS[0], ""), Text(FORMATS[1], "a"), Text(FORMATS[0], "")]) == [Text(FORMATS[1], "a")]
