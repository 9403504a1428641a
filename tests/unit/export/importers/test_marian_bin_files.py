"""Marian's binary models and shortlists: what is read, and what is refused, each in one line with the place."""

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.importers.foreign import ForeignModelError
from export.importers.marian_arrays import BinFile
from export.importers.marian_shortlist import TextLimits, read_marian_shortlist
from model.shortlist import Shortlist
from tests.parity.marian_bin_model import FLOAT32, INTGEMM8, Item, binary, padded, sealed, shortlist_bytes
from tests.parity.marian_npz_model import marian_config

MATRIX = np.array([[-3, -2, -1], [0, 1, 2]], np.float32)
STORED = (MATRIX.T * 42).astype(np.int8).tobytes()
WORDS = ["</s>", "<unk>", "a", "b", "c"]
LISTS = [[], [], [2, 3], [4], [2]]
WRAPPED = struct.pack("<10Q", 2, 2, 6, 4, 0, 2**63 - 1, 2**63 + 1, 3 * 2**62, 2, 4)  # as int64, each step is positive


def items(**changed: Any) -> list[Item]:
    """A matrix of integers, which `changed` describes, and what is beside it."""
    matrix: dict[str, Any] = {
        "name": "l_W",
        "kind": INTGEMM8,
        "shape": (2, 3),
        "bytes": padded(STORED + struct.pack("<f", 42)),
    }
    scale, bias = padded(b"\1" * 5), padded(np.ones(3, np.float32).tobytes())
    beside: list[Item] = [("Wemb_QuantMultA", INTGEMM8, (1, 1), scale), ("l_b", FLOAT32, (1, 3), bias)]
    name, kind, shape, content = (matrix | changed).values()
    return [(name, kind, shape, content), *beside]


def bin_refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ForeignModelError) as refused:
        BinFile(path).array("l_W", (2, 3))
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    return str(refused.value)


def test_integers_are_turned_back_into_the_matrix(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(binary(items()))
    file = BinFile(tmp_path / "model.bin")

    assert np.allclose(file.array("l_W", (2, 3)), MATRIX)
    assert file.array("l_b", (3,)).tolist() == [1, 1, 1]
    assert not file.unread  # scales of activations are none of the model's parameters


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": 0x802}, "'l_W' has type 0x802, which is not supported"),
        ({"kind": 0x2801}, "has type 0x2801"),
        ({"kind": 0x11001}, "has type 0x11001"),
        ({"kind": 0x8000_0000_0000_0404}, "type 0x8000000000000404"),
        ({"kind": FLOAT32, "bytes": padded(b"\xff\xff\x7f\x7f" * 5 + b"\0\0\xc0\x7f")}, "numbers that are not finite"),
        ({"shape": (3, 2)}, "l_W has shape (3, 2), (2, 3) is needed"),
        ({"shape": (-2, -3)}, "(-2, -3) of intgemm8, which 256 bytes do not hold"),
        ({"shape": (2**31 - 1,) * 8}, "which 256 bytes do not hold"),
        ({"shape": (1,) * 9}, "9 dimensions, at most 8"),
        ({"shape": ()}, "which 256 bytes do not hold"),
        ({"bytes": STORED + b"\0\0\0"}, "which 9 bytes do not hold"),
        ({"bytes": STORED + struct.pack("<f", 0)}, "its integers were multiplied with 0.0"),
        ({"bytes": STORED + struct.pack("<f", np.nan)}, "its integers were multiplied with nan"),
        ({"name": "l_b"}, "two items 'l_b'"),
        ({"name": "l_W\0\n"}, "is no name"),
        ({"name": "l" * 1_000}, "a name of 1001 bytes"),
    ],
)
def test_items_that_are_damaged_or_not_supported_are_refused(tmp_path: Path, changed: Any, message: str) -> None:
    assert message in bin_refusal(tmp_path / "model.bin", binary(items(**changed)))


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (0, 2, "no binary model of Marian, version 1"),
        (8, 2**64 - 1, "claims 18446744073709551615 items, at most 100000"),
        (8, 99_999, "it ends at byte"),
        (16, 2**63, "a name of 9223372036854775808 bytes"),
        (40, 2**62, "its headers say"),
        (40, 0, "which 0 bytes do not hold"),
    ],
)
def test_headers_that_claim_too_much_are_refused_without_memory_for_it(
    tmp_path: Path, at: int, number: int, message: str
) -> None:
    content = bytearray(binary(items()))
    content[at : at + 8] = struct.pack("<Q", number)
    tracemalloc.start()

    assert message in bin_refusal(tmp_path / "model.bin", bytes(content))

    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def read_list(path: Path, target: list[str] = WORDS, limits: TextLimits | None = None) -> Shortlist:
    config = replace(marian_config(len(WORDS)), target_vocab_size=len(target), shared_embeddings=False)
    return read_marian_shortlist(path, WORDS, target, limits or TextLimits(), config)


def rows(shortlist: Shortlist) -> list[list[int]]:
    return [shortlist.candidates([token]).tolist() for token in range(len(WORDS))]


def test_a_binary_shortlist_allows_what_marian_allows(tmp_path: Path) -> None:
    path = tmp_path / "lex.s2t.bin"
    path.write_bytes(shortlist_bytes(2, LISTS))

    assert rows(read_list(path, [*WORDS, "d"])) == [[0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 4], [0, 1, 2]]
    assert rows(read_list(path)) == [[0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 3, 4], [0, 1, 2, 4]]  # and itself


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("lex.bin", b"SHRTLIST" * 9, "no lexical shortlist"),
        ("lex.bin", shortlist_bytes(2, LISTS)[:47], "47 bytes, its header alone has 48"),
        ("lex.bin", shortlist_bytes(2, LISTS)[:-1], "111 bytes, its header asks for 112"),
        ("lex.bin", shortlist_bytes(2, LISTS[:4]), "has 5 offsets, a model with 5 source tokens needs one more"),
        ("lex.bin", shortlist_bytes(2, LISTS, ids=2**63), "its header asks for"),
        ("lex.bin", shortlist_bytes(2, LISTS, offsets=0), "has 0 offsets"),
        ("lex.bin", shortlist_bytes(2, [[], [], [5], [], []]), "target token 5, the model has 5"),
        ("lex.bin", shortlist_bytes(2, LISTS).replace(b"\2", b"\3"), "its checksum is another"),
        ("lex.bin", sealed(WRAPPED + bytes(16)), "its offsets do not run from 0 to 4"),
        ("lex.s2t", b"a b 0.5\na b\n", "line 2: b'a b\\n' is no target token, source token and probability"),
        ("lex.s2t", b"a b -1", "line 1"),
        ("lex.s2t", b"a b nan", "line 1"),
    ],
)
def test_shortlists_that_are_none_of_the_model_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ForeignModelError) as refused:
        read_list(tmp_path / name)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
