"""The graphs compute what the model computes, and a sentence's numbers depend on that sentence alone.

A step gives the best extensions of each sentence, ranked in two stages (blocks by their maxima, then what is in the
best of them), and tells whose numbers are none.

Axes: B sentences, K hypotheses of a sentence, T target or cache columns, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export.builder import Array
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.runner import Values
from model.config import NormPlacement
from tests.fakes.step_driver import (
    PRECISIONS,
    Edit,
    StepDriver,
    driver,
    full_log_probs,
    graphs_of,
    memory_of,
    random_targets,
)
from tests.fakes.tiny_model import TinyGraphs, padded, random_sentences

FP32_TOLERANCE = 2e-5  # log-probabilities; the same sums in another order (measured: 2e-6)
CACHE_COLUMNS = 16  # the step graph's self-attention columns come in multiples of this


def reference_log_probs(graphs: TinyGraphs, sentence: Sequence[int], target: Array) -> Array:
    """The PyTorch model without any cache: [T, V] for one sentence and one target."""
    source, lengths = padded([sentence])
    with torch.inference_mode():
        logits = graphs.model(torch.from_numpy(source), torch.from_numpy(lengths), torch.from_numpy(target[None]))
        log_probs: Array = logits[0].log_softmax(-1).numpy()
    return log_probs


def run_steps(driver: StepDriver, targets: Array, memory: Values, candidates: int | None = None) -> list[Values]:
    """Every hypothesis goes on with itself."""
    return [driver.step(tokens, memory, candidates=candidates) for tokens in targets]


@pytest.mark.parametrize("placement", list(NormPlacement))
def test_cached_steps_equal_the_model_without_a_cache(placement: NormPlacement) -> None:
    graphs = graphs_of("fp32", placement)
    sentences, beam = random_sentences(graphs.config, lengths=(7, 3, 5)), 2
    targets = random_targets(graphs, len(sentences), beam, num_steps=9)
    steps = run_steps(driver(graphs, 3, beam), targets, memory_of(graphs, sentences))

    found = np.stack([full_log_probs(step, beam, graphs.config) for step in steps])  # [T, B, K, V]
    for number, sentence in enumerate(sentences):
        for hypothesis in range(beam):
            expected = reference_log_probs(graphs, sentence, targets[:, number, hypothesis])
            np.testing.assert_allclose(found[:, number, hypothesis], expected, atol=FP32_TOLERANCE, rtol=0)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 2, 3, 8])
def test_a_sentence_alone_equals_the_sentence_in_a_batch_bit_for_bit(precision: str, beam: int) -> None:
    graphs = graphs_of(precision)
    sentences = random_sentences(graphs.config, lengths=(5, 12, 1, 19, 8))
    memory, targets = memory_of(graphs, sentences), random_targets(graphs, len(sentences), beam, num_steps=6)
    together = run_steps(driver(graphs, len(sentences), beam, 6 * CACHE_COLUMNS), targets, memory, 2 * beam)

    for number, sentence in enumerate(sentences):
        own = slice(number, number + 1)
        own_memory = memory_of(graphs, [sentence])  # encoded alone, and with fewer columns
        fewest = -(-6 * beam // CACHE_COLUMNS) * CACHE_COLUMNS
        alone = run_steps(driver(graphs, 1, beam, fewest), targets[:, own], own_memory, 2 * beam)
        assert_same_bits(alone, [{name: value[own] for name, value in step.items()} for step in together])


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
@pytest.mark.parametrize("beam", [1, 4, 5])
def test_cache_columns_that_no_hypothesis_attends_to_change_no_bit(precision: str, beam: int) -> None:
    graphs = graphs_of(precision)
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(5,)))
    targets = random_targets(graphs, 1, beam, num_steps=3)
    narrow = run_steps(driver(graphs, 1, beam, CACHE_COLUMNS), targets, memory, 2 * beam)

    for columns in (2 * CACHE_COLUMNS, 3 * CACHE_COLUMNS, 20 * CACHE_COLUMNS):
        batch = driver(graphs, 1, beam, columns)
        for number, cached in enumerate(batch.caches.values()):
            cached[:] = np.random.default_rng(number).standard_normal(cached.shape) * 100
        assert_same_bits(narrow, run_steps(batch, targets, memory, 2 * beam))


def assert_same_bits(ours: Sequence[Values], theirs: Sequence[Values]) -> None:
    """Of `check`, only whether it is a number matters."""
    for one, other in zip(ours, theirs, strict=True):
        for name in ("candidate_scores", "candidate_ids"):
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        np.testing.assert_array_equal(one["check"] < np.inf, other["check"] < np.inf)


@pytest.mark.parametrize(("vocab_size", "beam"), [(60, 8), (61, 1), (128, 3)])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_candidates_are_those_that_sorting_all_extensions_finds(vocab_size: int, beam: int, seed: int) -> None:
    """Also where the best lie together in one block, all with one hypothesis, and with hypotheses not yet born."""
    graphs, rng = graphs_of("fp32", vocab_size=vocab_size), np.random.default_rng(seed)
    memory, tokens = (
        memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3))),
        random_targets(graphs, 2, beam, 1),
    )
    scores = rng.normal(scale=rng.choice([0.01, 1.0, 30.0]), size=(2, beam)).astype(np.float32)
    scores[1, 1:] = -np.inf
    first = int(rng.integers(vocab_size))
    edits: dict[Edit, float] = {
        (sentence, int(rng.integers(beam)), token): float(rng.normal(3.0, 3.0))
        for sentence in range(2)
        for token in range(first, min(first + 2 * beam, vocab_size))
    }
    everything = full_log_probs(driver(graphs, 2, beam).step(tokens[0], memory, edits=edits), beam, graphs.config)
    padding = ((0, 0), (0, 0), (0, graphs.config.num_logits - vocab_size))
    everything = np.pad(everything, padding, constant_values=-np.inf)
    extensions = (everything + scores[:, :, None]).reshape(2, -1)  # [B, K * V], as the graph numbers them
    for count in (1, 2 * beam):
        best = driver(graphs, 2, beam).step(tokens[0], memory, scores=scores, candidates=count, edits=edits)
        for sums, found, ids in zip(extensions, best["candidate_scores"], best["candidate_ids"], strict=True):
            np.testing.assert_array_equal(found, -np.sort(-sums)[:count])
            np.testing.assert_array_equal(sums[ids], found)
            assert len(set(ids.tolist())) == count


@pytest.mark.parametrize("vocab_size", [60, 61])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("token", [0, 59])
@pytest.mark.parametrize("is_born", [True, False])
def test_nan_or_infinity_in_one_hypothesis_shows_in_the_check_of_its_sentence_alone(
    vocab_size: int, bad: float, token: int, *, is_born: bool
) -> None:
    graphs, beam = graphs_of("fp32", vocab_size=vocab_size), 3
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3, 4)))
    tokens = random_targets(graphs, 3, beam, 1)[0]
    scores = np.zeros((3, beam), np.float32)
    scores[1, 2] = 0.0 if is_born else -np.inf
    plain = driver(graphs, 3, beam).step(tokens, memory, scores=scores, candidates=6)
    faulty = driver(graphs, 3, beam).step(tokens, memory, scores=scores, candidates=6, edits={(1, 2, token): bad})

    assert (plain["check"] < 0).all()
    assert (faulty["check"] < np.inf).tolist() == [True, False, True]
    for name in plain:
        np.testing.assert_array_equal(faulty[name][[0, 2]], plain[name][[0, 2]])
    assert set(faulty["candidate_ids"].ravel().tolist()) <= set(range(beam * graphs.config.num_logits))


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
    assert tables == [graphs.config.num_logits * graphs.config.d_model * (4 if precision == "fp32" else 1)]
    assert (graphs.directory / "weights.data").stat().st_size == max(offset + length for offset, length in places)
