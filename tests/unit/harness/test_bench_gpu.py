"""What the GPU's benchmark makes of a profile, and of the bytes that a step must read."""

import json

from model.bundle import Bundle, default_bundle_dir
from tests.bench.gpu.step import floor_bytes, launches
from tests.bench.race.plan import Choice, cells


def _node(operator: str, microseconds: int) -> dict[str, object]:
    args = {"op_name": operator, "provider": "CUDAExecutionProvider"}
    return {"cat": "Node", "name": f"{operator}_1_kernel_time", "dur": microseconds, "args": args}


def test_operators_of_a_step_are_counted_without_those_that_launch_nothing(tmp_path):
    events = [_node("MatMul", 5), _node("MatMul", 7), _node("Reshape", 1), _node("Add", 2), {"cat": "Session"}] * 2
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))

    found = launches(path, num_steps=2)

    assert found.operators == {"MatMul": 2.0, "Add": 1.0}
    assert found.microseconds == {"MatMul": 12.0, "Add": 2.0, "Reshape": 1.0}
    assert found.kernels is None
    assert found.record()["operators_a_step"] == 3.0


def test_kernels_on_the_device_are_counted_where_the_profiler_sees_them(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([{"cat": "Kernel", "name": "gemm"}] * 6))

    assert launches(path, num_steps=2).kernels == 3.0


def test_a_step_reads_the_decoders_weights_once_and_every_sentences_columns():
    bundle = Bundle.load(default_bundle_dir())

    none, some = (floor_bytes(bundle, rows, 4, source_tokens=20, target_tokens=20) for rows in (0, 400))

    decoder = 2 * (6 * 256 * 256 + 2 * 256 * 1_024) + 8_000 * 256  # products of two layers, and the vocabulary
    assert none == 2 * decoder
    assert some == 2 * (decoder + 400 * 1_024 * 10 + 100 * 1_024 * 20)


def test_the_race_on_a_gpu_is_in_half_precision_with_large_batches_and_no_stream_of_the_baseline():
    choice = Choice(texts=["own"], shapes=["default"], peers=["CTranslate2", "Hugging Face"])

    planned = cells(Choice.on_gpu(choice))

    assert {cell.precision for cell in planned} == {"fp16"}
    assert {cell.size for cell in planned if cell.regime == "closed"} == {32, 256, 1_024}
    assert {cell.peer for cell in planned if cell.regime == "stream"} == {"CTranslate2"}
