"""How ONNX Runtime is told to run: exact int8 products on every CPU."""

import onnxruntime as ort
import pytest

from service.engine.choice import cpu_flags
from service.engine.cpu.runner import EXACT_INT8, session_options


def has_exact_int8(options: ort.SessionOptions) -> bool:
    try:
        return bool(options.get_session_config_entry(EXACT_INT8) == "1")
    except RuntimeError:  # no such entry
        return False


def test_cpu_flags_are_read_for_both_kinds_of_machine(tmp_path):
    (tmp_path / "x86").write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni\n\nprocessor\t: 1\nflags\t: other\n")
    (tmp_path / "arm").write_text("processor\t: 0\nFeatures\t: fp asimddp\n")

    assert cpu_flags(tmp_path / "x86") == {"fpu", "avx2", "avx512_vnni"}
    assert cpu_flags(tmp_path / "arm") == {"fp", "asimddp"}
    assert cpu_flags(tmp_path / "gone") == frozenset()


@pytest.mark.parametrize(
    ("flags", "unsigned"),
    [
        ({"avx2", "avx512f", "avx512_vnni"}, False),
        ({"avx2", "avx_vnni"}, False),
        ({"avx512f", "amx_int8"}, False),
        ({"fp", "asimddp"}, False),
        ({"avx2", "avx512f"}, True),
        (set(), True),
    ],
)
def test_weights_become_unsigned_where_int8_products_may_saturate(flags, unsigned):
    assert has_exact_int8(session_options(1, frozenset(flags))) is unsigned
