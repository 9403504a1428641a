"""The graphs compute what the model computes, and a row's numbers depend on that row alone.

Axes: B sentences, K hypotheses of a sentence, R = B * K rows, S source, T target or cache columns.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import onnx
import pytest
import torch

from export.builder import Array
from export.graphs import cross_names
from export.onnx_export import DECODER_STEP_NAME, ENCODER_NAME
from export.runner import Values
from model.config import BOS_ID, NormPlacement
from tests.fakes.step_driver import StepDriver, full_log_probs
from tests.fakes.tiny_model import TinyGraphs, padded, random_sentences, tiny_graphs

FP32_TOLERANCE = 2e-5  # log-probabilities; the same sums in another order (measured: 2e-6)
SOURCE_COLUMNS = 8  # the step graph's cross-attention columns come in multiples of this
PRECISIONS = ("fp32", "int8")


@cache
def graphs_of(precision: str, placement: NormPlacement = NormPlacement.PRE) -> TinyGraphs:
    return tiny_graphs(Path(mkdtemp(prefix="dragoman-test-")), precision, placement)


def memory_of(graphs: TinyGraphs, sentences: Sequence[Sequence[int]], num_columns: int | None = None) -> Values:
    """Encoder outputs padded to a multiple of `SOURCE_COLUMNS` (or to `num_columns`), and the lengths."""
    source, lengths = padded(sentences)
    encoded = graphs.runner.encode(source, lengths)
    columns = num_columns or -(-source.shape[1] // SOURCE_COLUMNS) * SOURCE_COLUMNS
    widths = [(0, 0), (0, 0), (0, columns - source.shape[1]), (0, 0)]
    return {"source_lengths": lengths, **{name: np.pad(value, widths) for name, value in encoded.items()}}


def part_of(memory: Values, sentence: int) -> Values:
    return {name: value[sentence : sentence + 1] for name, value in memory.items()}


def driver(graphs: TinyGraphs, num_sentences: int, beam: int, num_columns: int = 16) -> StepDriver:
    return StepDriver(graphs.directory / DECODER_STEP_NAME, graphs.config, num_sentences, beam, num_columns)


def random_targets(graphs: TinyGraphs, num_rows: int, num_steps: int, seed: int = 1) -> Array:
    targets = np.random.default_rng(seed).integers(4, graphs.config.vocab_size, (num_rows, num_steps))
    targets[:, 0] = BOS_ID
    return targets


def reference_log_probs(graphs: TinyGraphs, sentence: Sequence[int], targets: Array) -> Array:
    """The PyTorch model without any cache: [T, V] for one sentence and one target."""
    source, lengths = padded([sentence])
    with torch.inference_mode():
        logits = graphs.model(torch.from_numpy(source), torch.from_numpy(lengths), torch.from_numpy(targets[None]))
        log_probs: Array = logits[0].log_softmax(-1).numpy()
    return log_probs


def run_steps(driver: StepDriver, targets: Array, memory: Values, candidates: int) -> list[Values]:
    return [driver.step(targets[:, step], memory, candidates=candidates) for step in range(targets.shape[1])]


@pytest.mark.parametrize("placement", list(NormPlacement))
def test_cached_steps_equal_the_model_without_a_cache(placement: NormPlacement) -> None:
    graphs = graphs_of("fp32", placement)
    sentences, beam = random_sentences(graphs.config, lengths=(7, 3, 5)), 2
    targets = random_targets(graphs, len(sentences) * beam, num_steps=9)
    steps = run_steps(driver(graphs, 3, beam), targets, memory_of(graphs, sentences), graphs.config.vocab_size)

    for row, target in enumerate(targets):
        expected = reference_log_probs(graphs, sentences[row // beam], target)
        found = np.stack([full_log_probs(step)[row // beam, row % beam] for step in steps])
        np.testing.assert_allclose(found, expected, atol=FP32_TOLERANCE, rtol=0)


def test_rows_of_different_lengths_share_a_step() -> None:
    """The first sentence is five tokens ahead when the second one joins."""
    graphs = graphs_of("fp32")
    sentences = random_sentences(graphs.config, lengths=(6, 4))
    memory, targets = memory_of(graphs, sentences), random_targets(graphs, 2, num_steps=9)
    batch, ahead = driver(graphs, 2, beam=1), 5
    for step in range(ahead):
        batch.step(np.array([targets[0, step], BOS_ID]), memory, candidates=2)
        batch.lengths[1] = 0  # the second row starts over: it has not joined yet
    for step in range(targets.shape[1] - ahead):
        tokens = np.array([targets[0, ahead + step], targets[1, step]])
        found = full_log_probs(batch.step(tokens, memory, candidates=graphs.config.vocab_size))

        older = reference_log_probs(graphs, sentences[0], targets[0, : ahead + step + 1])[-1]
        younger = reference_log_probs(graphs, sentences[1], targets[1, : step + 1])[-1]
        np.testing.assert_allclose(found[:, 0], [older, younger], atol=FP32_TOLERANCE, rtol=0)


def test_a_step_writes_one_column_of_each_row_and_leaves_the_rest() -> None:
    graphs = graphs_of("fp32")
    batch = driver(graphs, 2, beam=1)
    batch.lengths = np.array([3, 0], np.int32)
    for cache_ in batch.caches.values():
        cache_[:] = np.random.default_rng(0).standard_normal(cache_.shape)
    before = {name: cache_.copy() for name, cache_ in batch.caches.items()}
    batch.step(np.array([5, BOS_ID]), memory_of(graphs, random_sentences(graphs.config, lengths=(4, 4))), candidates=2)

    for name, cache_ in batch.caches.items():
        changed = (cache_ != before[name]).any(axis=(1, 3))  # [R, T]
        assert np.argwhere(changed).tolist() == [[0, 3], [1, 0]]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 2, 3, 8])
def test_a_sentence_alone_equals_the_sentence_in_a_batch_bit_for_bit(precision: str, beam: int) -> None:
    graphs = graphs_of(precision)
    sentences = random_sentences(graphs.config, lengths=(5, 12, 1, 19, 8))
    memory, targets = memory_of(graphs, sentences), random_targets(graphs, len(sentences) * beam, num_steps=6)
    together = run_steps(driver(graphs, len(sentences), beam), targets, memory, 2 * beam)

    for number, sentence in enumerate(sentences):
        rows = slice(number * beam, (number + 1) * beam)
        own_memory = memory_of(graphs, [sentence])  # encoded alone, and with fewer columns
        alone = run_steps(driver(graphs, 1, beam, num_columns=7), targets[rows], own_memory, 2 * beam)
        for ours, theirs in zip(alone, together, strict=True):
            for name, value in ours.items():
                np.testing.assert_array_equal(value[0], theirs[name][number], err_msg=f"sentence {number}, {name}")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
def test_encoder_padding_changes_no_bit(precision: str, length: int) -> None:
    graphs = graphs_of(precision)
    sentences = random_sentences(graphs.config, lengths=(length,))
    alone = graphs.runner.encode(*padded(sentences))

    for columns in range(length + 1, length + 20):
        wider = graphs.runner.encode(*padded(sentences, columns))
        for name, value in alone.items():
            np.testing.assert_array_equal(wider[name][:, :, :length], value, err_msg=f"{columns} columns, {name}")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 4])
def test_cross_attention_columns_beyond_the_source_change_no_bit(precision: str, beam: int) -> None:
    graphs = graphs_of(precision)
    sentences, targets = random_sentences(graphs.config, lengths=(5,)), random_targets(graphs, beam, num_steps=3)
    narrow = run_steps(driver(graphs, 1, beam), targets, memory_of(graphs, sentences, 8), 2 * beam)

    for columns in (16, 40, 128):
        memory = memory_of(graphs, sentences, columns)
        for name in cross_names(0) + cross_names(1):
            memory[name][:, :, 5:] = 1e3  # what stands there is masked, whatever it is
        wide = run_steps(driver(graphs, 1, beam), targets, memory, 2 * beam)
        for ours, theirs in zip(narrow, wide, strict=True):
            np.testing.assert_array_equal(ours["candidate_log_probs"], theirs["candidate_log_probs"])
            np.testing.assert_array_equal(ours["candidate_tokens"], theirs["candidate_tokens"])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_candidates_are_the_best_of_the_whole_vocabulary(precision: str) -> None:
    graphs = graphs_of(precision)
    memory, tokens = (
        memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3))),
        random_targets(graphs, 6, 1)[:, 0],
    )
    everything = full_log_probs(driver(graphs, 2, beam=3).step(tokens, memory, candidates=graphs.config.vocab_size))
    best = driver(graphs, 2, beam=3).step(tokens, memory, candidates=6)

    np.testing.assert_array_equal(best["candidate_log_probs"], -np.sort(-everything, axis=-1)[..., :6])
    np.testing.assert_array_equal(
        np.take_along_axis(everything, best["candidate_tokens"], axis=-1), best["candidate_log_probs"]
    )
    np.testing.assert_allclose(np.exp(everything).sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_edits_are_added_to_the_logits_before_the_softmax(precision: str) -> None:
    graphs = graphs_of(precision)
    memory, tokens = memory_of(graphs, random_sentences(graphs.config, lengths=(6,))), np.array([BOS_ID, BOS_ID])
    edits = {(0, 7): -np.inf, (1, 9): 2.5, (1, 11): -1.0}
    plain, edited = (
        full_log_probs(
            driver(graphs, 1, beam=2).step(tokens, memory, candidates=graphs.config.vocab_size, edits=given)
        )[0]
        for given in ({}, edits)
    )
    for (row, token), value in edits.items():
        plain[row, token] += value
    expected = torch.from_numpy(plain).log_softmax(-1).numpy()

    np.testing.assert_allclose(edited, expected, atol=1e-5)
    assert edited[0, 7] == -np.inf


def test_int8_is_near_fp32() -> None:
    fp32, int8 = graphs_of("fp32"), graphs_of("int8")
    sentences = random_sentences(fp32.config, lengths=(9,), seed=5)
    targets = random_targets(fp32, 1, num_steps=8)
    found, expected = (
        np.stack(
            [
                full_log_probs(step)
                for step in run_steps(driver(graphs, 1, 1), targets, memory_of(graphs, sentences), 60)
            ]
        )
        for graphs in (int8, fp32)
    )

    assert np.abs(found - expected).mean() < 0.1  # measured 0.02; a wrong scale gives more than 1
    assert not np.array_equal(found, expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_large_tensor_is_stored_twice(precision: str) -> None:
    """Encoder, decoder and projection read one embedding table; the weight file holds nothing else than its tensors."""
    graphs = graphs_of(precision)
    places: dict[tuple[int, int], set[str]] = {}
    for name in (ENCODER_NAME, DECODER_STEP_NAME):
        for tensor in onnx.load(graphs.directory / name, load_external_data=False).graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                places.setdefault((int(entries["offset"]), int(entries["length"])), set()).add(tensor.name)

    assert all(len(names) == 1 for names in places.values())
    tables = [length for (_, length), names in places.items() if any("embedding" in name for name in names)]
    assert tables == [graphs.config.vocab_size * graphs.config.d_model * (4 if precision == "fp32" else 1)]
    assert (graphs.directory / "weights.data").stat().st_size == max(offset + length for offset, length in places)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [ENCODER_NAME, DECODER_STEP_NAME])
def test_the_graphs_pass_onnx_s_own_check(precision: str, name: str) -> None:
    onnx.checker.check_model(graphs_of(precision).directory / name)


def test_edits_need_no_copy_of_the_logits() -> None:
    """ONNX Runtime scatters in place only when it can see that input and output have one shape."""
    graph = onnx.load(graphs_of("int8").directory / DECODER_STEP_NAME, load_external_data=False).graph
    scatter = next(node for node in graph.node if node.op_type == "ScatterElements")
    shapes = {hint.name: [axis.dim_param for axis in hint.type.tensor_type.shape.dim] for hint in graph.value_info}

    assert shapes[scatter.input[0]] == shapes[scatter.output[0]] == ["R * V"]


def test_the_step_graph_stays_small() -> None:
    """A node costs 1 - 2 microseconds before it computes anything, and a step runs for every token."""
    step = onnx.load(graphs_of("int8").directory / DECODER_STEP_NAME, load_external_data=False).graph.node

    assert len(step) <= 22 + 23 * 2  # two layers
    assert not {"SkipLayerNormalization", "ReduceLogSumExp", "DynamicQuantizeMatMul"} & {node.op_type for node in step}
