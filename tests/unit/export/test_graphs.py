"""The graphs compute what the model computes, and a sentence's numbers depend on that sentence alone.

A step gives the best extensions of each sentence, ranked in two stages (blocks by their maxima, then what is in the
best of them), and tells whose numbers are none.

Axes: B sentences, K hypotheses of a sentence, T target or cache columns, V vocabulary.
"""

import atexit
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export.builder import Array
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.runner import MASKED, Values, open_session
from export.transformer_graph import cache_names
from model.config import BOS_ID, ModelConfig, NormPlacement
from tests.fakes.tiny_model import TinyGraphs, padded, random_sentences, tiny_graphs

OUTPUTS = ["candidate_scores", "candidate_ids", "check"]
Edit = tuple[int, int, int]  # sentence, hypothesis, token


class StepDriver:
    def __init__(
        self, decoder_step: Path, config: ModelConfig, num_sentences: int, beam: int, num_columns: int
    ) -> None:
        self._session = open_session(decoder_step)
        self._num_logits = config.num_logits
        self.past_lengths = np.zeros((num_sentences, 1), np.int64)
        self.columns = np.zeros(num_sentences, np.int64)  # filled, of each sentence
        self.mask = np.full((num_sentences, 1, beam, num_columns), MASKED, np.float32)
        shape = (num_sentences, config.num_heads, num_columns, config.d_head)
        names = [name for layer in range(config.num_decoder_layers) for name in cache_names(config, layer)]
        self.caches = {name: np.full(shape, 1e3, np.float32) for name in names}  # what is masked must not matter

    def step(
        self,
        tokens: Array,
        memory: Values,
        *,
        scores: Array | None = None,
        candidates: int | None = None,
        edits: Mapping[Edit, float] | None = None,
    ) -> Values:
        """One token for every hypothesis.

        Args:
            tokens: [B, K].
            memory: the cross keys and values, and `source_lengths`.
            scores: [B, K]; zeros if not given.
            candidates: C; all K * V of a sentence if not given.
            edits: what is added to logits.

        Returns:
            Those of `OUTPUTS`.
        """
        (num_sentences, beam), edits = tokens.shape, edits or {}
        own = self.columns[:, None] + np.arange(beam)  # [B, K]
        np.put_along_axis(self.mask, own[:, None, :, None], 0.0, axis=3)
        places = [(sentence * beam + hypothesis) * self._num_logits + token for sentence, hypothesis, token in edits]
        binding = self._session.io_binding()
        feeds = {
            "tokens": tokens,
            "scores": np.zeros((num_sentences, beam, 1), np.float32) if scores is None else scores[:, :, None],
            "past_lengths": self.past_lengths,
            "columns": self.columns,
            "self_mask": self.mask,
            "edit_places": np.array(places, np.int64),
            "edit_values": np.array(list(edits.values()), np.float32),
            "edit_factors": np.ones(len(edits), np.float32),
            "num_candidates": np.array([candidates or beam * self._num_logits]),
            **memory,
        }
        for name, value in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(value))
        self._bind_in_place(binding)
        self._session.run_with_iobinding(binding)
        self.past_lengths = self.past_lengths + 1
        self.columns = self.columns + beam
        return dict(zip(OUTPUTS, binding.copy_outputs_to_cpu()[-len(OUTPUTS) :], strict=True))

    def _bind_in_place(self, binding: ort.IOBinding) -> None:
        for name, array in self.caches.items():
            value = ort.OrtValue.ortvalue_from_numpy(array)  # shares the array's memory
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(f"{name}_out", value)
        for name in OUTPUTS:
            binding.bind_output(name)


def full_log_probs(outputs: Values, beam: int, config: ModelConfig) -> Array:
    """[B, K, V] in the order of the vocabulary, from candidates that are all of it, with scores of zero."""
    log_probs = np.empty_like(outputs["candidate_scores"])
    np.put_along_axis(log_probs, outputs["candidate_ids"], outputs["candidate_scores"], axis=-1)
    return log_probs.reshape(len(log_probs), beam, -1)[:, :, : config.num_target_tokens]


PRECISIONS = ("fp32", "int8")
SOURCE_COLUMNS = 8  # the step graph's cross-attention columns come in multiples of this


@cache
def graphs_of(precision: str, placement: NormPlacement = NormPlacement.PRE, vocab_size: int = 60) -> TinyGraphs:
    """The same model for all precisions."""
    directory = Path(mkdtemp(prefix="dragoman-test-"))
    atexit.register(rmtree, directory, ignore_errors=True)
    return tiny_graphs(directory, precision, placement, vocab_size=vocab_size)


def memory_of(graphs: TinyGraphs, sentences: Sequence[Sequence[int]], num_columns: int | None = None) -> Values:
    """Encoder outputs padded to a multiple of `SOURCE_COLUMNS` (or to `num_columns`), and the lengths."""
    source, lengths = padded(sentences)
    encoded = graphs.runner.encode(source, lengths)
    columns = num_columns or -(-source.shape[1] // SOURCE_COLUMNS) * SOURCE_COLUMNS
    widths = [(0, 0), (0, 0), (0, columns - source.shape[1]), (0, 0)]
    return {"source_lengths": lengths, **{name: np.pad(value, widths) for name, value in encoded.items()}}


def driver(graphs: TinyGraphs, num_sentences: int, beam: int, num_columns: int = 48) -> StepDriver:
    return StepDriver(graphs.directory / DECODER_STEP_NAME, graphs.config, num_sentences, beam, num_columns)


def random_targets(graphs: TinyGraphs, num_sentences: int, beam: int, num_steps: int, seed: int = 1) -> Array:
    """Tokens to go on with, [T, B, K], beginning of sentence first."""
    shape = (num_steps, num_sentences, beam)
    targets = np.random.default_rng(seed).integers(4, graphs.config.vocab_size, shape)
    targets[0] = BOS_ID
    return targets


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
