"""Candidates of a sentence, and a file that says what it is or is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

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
    assert shortlist().candidates([8, EOS_ID]).tolist() == shortlist().candidates([]).tolist() == ALWAYS
    assert shortlist().entries.tolist() == [5, 9, 5, 0, 6]  # nothing that is always allowed


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 1 << 16, (1 << 16) + 1])
def test_a_saved_shortlist_loads_as_it_was(tmp_path, vocab_size):
    saved = shortlist(vocab_size)
    saved.save(tmp_path / "shortlist.csr")

    loaded = Shortlist.load(tmp_path / "shortlist.csr", vocab_size)

    for name in ("always", "offsets", "entries"):
        assert getattr(loaded, name).tolist() == getattr(saved, name).tolist()


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
        (OFFSETS_AT + 4 * VOCAB_SIZE, "<I", (4,), "offsets do not run from 0 to the 5 candidates"),
        (OFFSETS_AT + 4 * 5, "<I", (0xFFFFFFFF,), "an offset is below the one before it"),
        (ALWAYS_AT, "<3H", (1, 3, 12), "always allowed has ids from 1 to 12, they must be below 12"),
        (ALWAYS_AT, "<3H", (1, 4, 11), r"end-of-sentence \(id 3\) is not always allowed"),
        (ENTRIES_AT, "<2H", (5, 12), "candidates has ids from 0 to 12"),
        (ENTRIES_AT, "<2H", (9, 5), "ids are not in ascending order"),
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
