"""model.bin: what is read from good files, and what hostile ones are refused with."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.importers.foreign import ForeignModelError
from export.importers.model_bin import ModelFile


def text(value: str) -> bytes:
    content = value.encode() + b"\0"
    return struct.pack("<H", len(content)) + content


def variable(name: str, array: Any, *, version: int = 6, number: int | None = None) -> bytes:
    """A variable as CTranslate2 writes it; `number` replaces the type's."""
    array = np.asarray(array)
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    numbers = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "uint16": 5}
    kind = numbers[array.dtype.name] if version >= 4 else array.itemsize
    size = array.nbytes if version >= 4 else array.size
    return b"".join([text(name), shape, struct.pack("<BI", kind if number is None else number, size), array.tobytes()])


def model_bin(variables: Sequence[bytes], aliases: Sequence[tuple[str, str]] = (), version: int = 6) -> bytes:
    parts = [struct.pack("<I", version)]
    if version >= 2:
        parts += [text("TransformerSpec"), struct.pack("<I", 7)]
    parts += [struct.pack("<I", len(variables)), *variables]
    if version >= 3:
        parts += [struct.pack("<I", len(aliases)), *(text(name) for pair in aliases for name in pair)]
    return b"".join(parts)


GOOD = model_bin(
    [
        variable("a/weight", np.arange(6, dtype=np.int8).reshape(2, 3)),
        variable("a/weight_scale", np.array([2.0, 4.0], np.float32)),
        variable("b/bias", np.array([1.5, -2.0], np.float16)),
        variable("flag", np.int8(1)),
    ],
    [("c/weight", "a/weight")],
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.bin"


class TestGoodFiles:
    @pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
    def test_float32_is_read_in_every_version(self, path, version):
        numbers = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
        file = ModelFile(write(path, model_bin([variable("w", numbers, version=version)], version=version)))

        np.testing.assert_array_equal(file.array("w", (3, 4)), numbers)
        assert file.unread == []

    def test_int8_rows_are_divided_by_their_scales(self, path):
        file = ModelFile(write(path, GOOD))

        np.testing.assert_array_equal(file.array("a/weight"), [[0, 0.5, 1], [0.75, 1, 1.25]])

    def test_an_alias_is_its_variable_with_the_scale(self, path):
        file = ModelFile(write(path, GOOD))

        np.testing.assert_array_equal(file.array("c/weight"), file.array("a/weight"))
        assert file.is_same("c/weight", "a/weight")

    def test_int16_is_divided_by_its_scale_or_by_1000(self, path):
        numbers = np.array([[500, -250]], np.int16)
        scaled = [variable("s/weight", numbers), variable("s/weight_scale", np.float32(100))]
        file = ModelFile(write(path, model_bin([variable("w/weight", numbers), *scaled])))

        np.testing.assert_allclose(file.array("w/weight"), [[0.5, -0.25]])
        np.testing.assert_allclose(file.array("s/weight"), [[5.0, -2.5]])

    def test_half_precisions(self, path):
        numbers = np.array([1.0, -0.15625, 3.0], np.float32)
        brain = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        file = ModelFile(write(path, model_bin([variable("b", brain), variable("h", numbers.astype(np.float16))])))

        np.testing.assert_array_equal(file.array("b"), numbers)
        np.testing.assert_array_equal(file.array("h"), numbers)


class TestHostileFiles:
    """Each is refused in one line that says the place and what is wrong."""

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"\x06\x00", "at byte 0: the file's version needs 4 bytes, 2 are left"),
            (struct.pack("<I", 7) + GOOD[4:], "version 7, this program reads 1 to 6"),
            (b"PK\x03\x04" + GOOD[4:], "is it a model.bin"),
            (GOOD[:-1], "are left; the file is cut or damaged"),
            (GOOD + b"\0", "1 bytes follow the last part"),
            (GOOD[:40], "are left; the file is cut or damaged"),
            (model_bin([])[:-8] + struct.pack("<I", 0xFFFFFFFF), "4294967295 variables, at most 100000 are accepted"),
            (model_bin([text("w") + struct.pack("<B", 200)]), "'w' has rank 200, at most 8 is accepted"),
            (
                model_bin([text("w") + struct.pack("<B2IBI", 2, 0xFFFFFFFF, 0xFFFFFFFF, 0, 4) + b"\0\0\0\0"]),
                "its shape (4294967295, 4294967295) of float32 needs 73786976260478468100",
            ),
            (
                model_bin([text("w") + struct.pack("<BIBI", 1, 0x3FFFFFFF, 0, 0xFFFFFFFC) + b"\0\0\0\0"]),
                "the numbers of 'w' needs 4294967292 bytes",
            ),
            (model_bin([variable("w", np.zeros((0, 3), np.float32))]), "'w' has shape (0, 3), without any number"),
            (model_bin([variable("w", np.zeros(2, np.float32), number=9)]), "'w' has type 9"),
            (model_bin([variable("w", np.zeros(2, np.float32))] * 2), "variable 'w' is there twice"),
            (model_bin([], [("a", "b")]), "alias 'a' means 'b', which is no variable"),
            (model_bin([struct.pack("<H", 3) + b"\xff\xff\0"]), "the name of variable 0 is no text"),
            (model_bin([struct.pack("<H", 2) + b"ab"]), "does not end with the zero of a string"),
        ],
    )
    def test_damage_is_refused_with_its_place(self, path, content, message):
        with pytest.raises(ForeignModelError, match=r"model\.bin") as refused:
            ModelFile(write(path, content))

        assert message in str(refused.value)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        ("variables", "message"),
        [
            ([variable("w/weight", np.ones((2, 2), np.int8))], "is int8 and has no w/weight_scale"),
            (
                [variable("w/weight", np.ones((2, 2), np.int8)), variable("w/weight_scale", np.ones(3, np.float32))],
                "has 3 numbers for 2 rows",
            ),
            (
                [variable("w/weight", np.ones((2, 2), np.int8)), variable("w/weight_scale", np.zeros(2, np.float32))],
                "w/weight_scale has zeros",
            ),
            ([variable("w/weight", np.array([1, np.nan], np.float32))], "numbers that are not finite"),
        ],
    )
    def test_numbers_that_mean_nothing_are_refused(self, path, variables, message):
        file = ModelFile(write(path, model_bin(variables)))

        with pytest.raises(ForeignModelError, match=message):
            file.array("w/weight")
