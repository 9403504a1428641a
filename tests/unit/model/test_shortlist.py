"""Candidates of a sentence, and a file that says what it is or is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import EOS_ID, UNK_ID
from model.shortlist import Shortlist

VOCAB_SIZE = 12
ALWAYS = [UNK_ID, EOS_ID, 11]
LINKS = {4: [5, 9], 5: [5], 7: [0, 6, 11]}  # source token -> target tokens; 11 is always allowed anyway
HEADER_BYTES = 24


def shortlist(vocab_size: int = VOCAB_SIZE) -> Shortlist:
    pairs = [(source, target) for source, targets in LINKS.items() for target in reversed(targets)]
    sources, targets = np.array(pairs).T
    return Shortlist.from_links(vocab_size, np.array(ALWAYS), sources, targets)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "shortlist.csr"
    shortlist().save(found)
    return found


def test_candidates_are_what_is_always_allowed_and_what_the_source_tokens_may_become():
    assert shortlist().candidates([4, 7, 4]).tolist() == [0, 1, 3, 5, 6, 9, 11]


def test_a_source_without_candidates_has_what_is_always_allowed():
    assert shortlist().candidates([8, EOS_ID]).tolist() == ALWAYS
    assert shortlist().candidates([]).tolist() == ALWAYS


def test_what_is_always_allowed_is_not_stored_again():
    assert shortlist().entries.tolist() == [5, 9, 5, 0, 6]


@given(st.lists(st.integers(0, VOCAB_SIZE - 1)), st.lists(st.integers(0, VOCAB_SIZE - 1)))
def test_the_candidates_of_two_sources_together_are_the_union_of_theirs(first, second):
    lists = shortlist()

    union = np.union1d(lists.candidates(first), lists.candidates(second))
    assert lists.candidates([*first, *second]).tolist() == union.tolist()


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 1 << 16, (1 << 16) + 1])
def test_a_saved_shortlist_loads_as_it_was(tmp_path, vocab_size):
    saved = shortlist(vocab_size)
    saved.save(tmp_path / "shortlist.csr")

    loaded = Shortlist.load(tmp_path / "shortlist.csr", vocab_size)

    for name in ("always", "offsets", "entries"):
        assert getattr(loaded, name).tolist() == getattr(saved, name).tolist()


def test_the_file_has_two_bytes_for_an_id_where_they_suffice(tmp_path):
    sizes = []
    for vocab_size in (1 << 16, (1 << 16) + 1):
        shortlist(vocab_size).save(tmp_path / "shortlist.csr")
        sizes.append((tmp_path / "shortlist.csr").stat().st_size - HEADER_BYTES - 4 * (vocab_size + 1))

    assert sizes == [8 * 2, 8 * 4]


def test_saving_leaves_nothing_but_the_file(path):
    assert [file.name for file in path.parent.iterdir()] == ["shortlist.csr"]


def patched(path: Path, offset: int, layout: str, *values: int | bytes) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, offset, *values)
    path.write_bytes(bytes(data))


OFFSETS_AT = HEADER_BYTES
ALWAYS_AT = OFFSETS_AT + 4 * (VOCAB_SIZE + 1)
ENTRIES_AT = ALWAYS_AT + 2 * len(ALWAYS)


@pytest.mark.parametrize(
    ("offset", "layout", "values", "message"),
    [
        (0, "<8s", (b"PK\x03\x04zzzz",), "a shortlist begins with b'SHRTLIST'"),
        (8, "<I", (2,), "has format version 2, this program reads 1"),
        (12, "<I", (13,), "is for a vocabulary of 13, the model's has 12"),
        (16, "<I", (0xFFFFFFFF,), "has 92 bytes, its header asks for"),
        (OFFSETS_AT, "<I", (1,), "offsets do not run from 0 to the 5 candidates"),
        (OFFSETS_AT + 4 * VOCAB_SIZE, "<I", (4,), "offsets do not run from 0 to the 5 candidates"),
        (OFFSETS_AT + 4 * 5, "<I", (0xFFFFFFFF,), "an offset is below the one before it"),
        (ALWAYS_AT, "<3H", (1, 3, 12), "always allowed has ids from 1 to 12, they must be below 12"),
        (ALWAYS_AT, "<3H", (1, 4, 11), r"end-of-sentence \(id 3\) is not always allowed"),
        (ALWAYS_AT, "<3H", (3, 1, 11), "ids are not in ascending order"),
        (ENTRIES_AT, "<2H", (5, 12), "candidates has ids from 0 to 12"),
        (ENTRIES_AT, "<2H", (9, 5), "ids are not in ascending order"),
        (ENTRIES_AT, "<2H", (5, 5), "ids are not in ascending order"),
    ],
)
def test_a_file_with_one_wrong_number_is_refused(path, offset, layout, values, message):
    patched(path, offset, layout, *values)

    with pytest.raises(ValueError, match=rf"shortlist\.csr: .*{message}"):
        Shortlist.load(path, VOCAB_SIZE)


@pytest.mark.parametrize("size", [0, 5, HEADER_BYTES, 91, 93])
def test_a_file_of_another_size_is_refused(path, size):
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])

    with pytest.raises(ValueError, match=rf"shortlist\.csr: has {size} bytes"):
        Shortlist.load(path, VOCAB_SIZE)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csr does not exist"):
        Shortlist.load(tmp_path / "none.csr", VOCAB_SIZE)


def test_a_shortlist_of_another_vocabulary_is_refused(path):
    with pytest.raises(ValueError, match="is for a vocabulary of 12, the model's has 8000"):
        Shortlist.load(path, 8_000)


PIECES = ["<pad>", "<unk>", "<s>", "</s>", "\u2581the", "s", "\u2581die", "x", "y", "n", "z", "."]


def test_vmap_has_a_line_for_what_is_always_allowed_and_one_for_each_source_with_candidates(tmp_path):
    shortlist().write_vmap(tmp_path / "vmap.txt", PIECES)

    assert (tmp_path / "vmap.txt").read_text(encoding="utf-8").splitlines() == [
        "\t<unk> </s> .",
        "\u2581the\ts n",
        "s\ts",
        "x\t<pad> \u2581die",
    ]


@pytest.mark.parametrize("piece", ["", "a b", "a\t", "\u2028"])
def test_vmap_cannot_have_pieces_with_blanks(tmp_path, piece):
    with pytest.raises(ValueError, match=r"which vmap\.txt cannot express"):
        shortlist().write_vmap(tmp_path / "vmap.txt", [*PIECES[:-1], piece])


def test_vmap_needs_a_piece_for_every_id(tmp_path):
    with pytest.raises(ValueError, match="11 pieces, the shortlist has a vocabulary of 12"):
        shortlist().write_vmap(tmp_path / "vmap.txt", PIECES[:-1])
