"""How ONNX Runtime is told to run: exact int8 products on every CPU, and graphs that several engines share."""

import shutil

import onnxruntime as ort
import pytest

from model.bundle import Bundle, default_bundle_dir
from service.engine.cpu.instructions import cpu_flags
from service.engine.cpu.prepare import prepare_graphs
from service.engine.cpu.runner import CpuRunner
from service.engine.cpu.session import EXACT_INT8, session_options


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


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.load(default_bundle_dir(), verify=False)


def test_without_room_nothing_is_prepared(bundle, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_000_000))

    with pytest.raises(OSError, match="has room for 10,000,000 bytes"):
        prepare_graphs(bundle, "int8", tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoil", ["opened to others", "damaged"])
def test_prepared_graphs_that_cannot_be_used_leave_the_bundle_s_own(bundle, tmp_path, spoil):
    prepare_graphs(bundle, "int8", tmp_path)
    if spoil == "damaged":
        (tmp_path / "int8" / "encoder.onnx").write_bytes(b"no graph")
    else:
        tmp_path.chmod(0o777)

    with pytest.warns(RuntimeWarning, match="weights are not shared with other engines"):
        runner = CpuRunner(bundle, precision="int8", prepared_dir=tmp_path)

    assert runner.encode([(5, 3)]).num_columns == 2
