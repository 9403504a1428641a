"""A graph that differs from the model is told from one that does not, and refused."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from export.builder import Array
from export.verify import TOLERANCES, Parity, ParityError, compare, seeded_samples, translated_samples
from tests.fakes.tiny_model import TinyGraphs, random_sentences, tiny_graphs, tiny_model

EQUAL = Parity(largest_difference=0.0, mean_difference=0.0, same_best_token=1.0, positions=10)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> TinyGraphs:
    return tiny_graphs(tmp_path_factory.mktemp("graphs"), "fp32")


def test_the_model_s_own_graphs_are_within_tolerance(graphs: TinyGraphs) -> None:
    parity = compare(graphs.runner, graphs.model, seeded_samples(graphs.config))

    parity.require("fp32", TOLERANCES["fp32"])
    assert 0 < parity.largest_difference < 1e-4
    assert parity.positions == 1 * 1 + 1 * 5 + 3 * 9 + 8 * 17


def test_a_number_that_is_none_is_found_in_the_first_sample_too(
    graphs: TinyGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, forced = seeded_samples(graphs.config), graphs.runner.forced_log_probs

    def spoiled(source: Array, source_lengths: Array, targets: Array) -> Iterator[Array]:
        for log_probs in forced(source, source_lengths, targets):
            yield np.full_like(log_probs, np.nan) if source is samples[0].source else log_probs

    monkeypatch.setattr(graphs.runner, "forced_log_probs", spoiled)
    parity = compare(graphs.runner, graphs.model, samples)

    with pytest.raises(ParityError, match="largest_difference is nan"):
        parity.require("int8", TOLERANCES["int8"])


@pytest.mark.parametrize(
    "parameter",
    [
        "embedding.weight",
        "encoder.layers.1.self_attention.key.weight",
        "decoder.layers.1.cross_attention.key.weight",
        "decoder.layers.1.feed_forward.inner.bias",
    ],
)
def test_one_wrong_parameter_is_refused(graphs: TinyGraphs, parameter: str) -> None:
    other = tiny_model(graphs.config)
    with torch.no_grad():
        other.get_parameter(parameter).mul_(1.05)
    parity = compare(graphs.runner, other, seeded_samples(graphs.config))

    with pytest.raises(ParityError, match=r"fp32: largest_difference is 0\.\d+ log-probability, at most 0\.001 is"):
        parity.require("fp32", TOLERANCES["fp32"])


def test_either_of_two_tokens_that_are_as_good_is_the_best(graphs: TinyGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(graphs.config)  # whose tokens come in equal pairs

    def odd_ones_first(source: Array, source_lengths: Array, targets: Array) -> Iterator[Array]:
        lengths = torch.from_numpy(source_lengths)
        states = model.decode(torch.from_numpy(targets), model.encode(torch.from_numpy(source), lengths), lengths)
        log_probs = model.log_probs(model.project(states)).numpy().copy()
        log_probs[..., 1::2] += 1e-5
        yield from log_probs.transpose(1, 0, 2)

    monkeypatch.setattr(graphs.runner, "forced_log_probs", odd_ones_first)
    with torch.inference_mode():
        model.embedding.weight[1::2] = model.embedding.weight[::2]
        parity = compare(graphs.runner, model, seeded_samples(graphs.config))

    assert parity.same_best_token == 1.0


def test_translated_samples_force_the_graphs_own_translation(graphs: TinyGraphs) -> None:
    sentences = random_sentences(graphs.config, lengths=(3, 8))
    (sample,) = translated_samples(graphs.runner, graphs.config, sentences)

    assert [row[:length].tolist() for row, length in zip(sample.source, sample.source_lengths, strict=True)] == (
        sentences
    )
    log_probs = np.stack(
        list(graphs.runner.forced_log_probs(sample.source, sample.source_lengths, sample.targets)), axis=1
    )
    for best, row, length in zip(log_probs.argmax(-1), sample.targets, sample.target_lengths, strict=True):
        assert best[: length - 1].tolist() == row[1:length].tolist()


def test_what_lies_behind_a_target_is_not_compared(graphs: TinyGraphs) -> None:
    whole = seeded_samples(graphs.config)[-1]
    cut = whole._replace(target_lengths=np.arange(1, 9))

    assert compare(graphs.runner, graphs.model, [cut]).positions == sum(range(1, 9))


def test_batches_are_translated_as_each_sentence_alone(graphs: TinyGraphs) -> None:
    sentences = random_sentences(graphs.config, lengths=range(2, 22))

    assert graphs.runner.greedy(sentences, 12) == [graphs.runner.greedy([one], 12)[0] for one in sentences]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"largest_difference": 0.002}, "largest_difference is 0.002"),
        ({"largest_difference": float("nan")}, "largest_difference is nan"),
        ({"mean_difference": 0.01}, "mean_difference is 0.01"),
        ({"same_best_token": 0.5}, "same at 50.0% of 10 positions, at least 99.0%"),
    ],
)
def test_each_number_over_its_limit_is_refused(changes: dict[str, float], message: str) -> None:
    EQUAL.require("fp32", TOLERANCES["fp32"])

    with pytest.raises(ParityError, match=message):
        replace(EQUAL, **changes).require("fp32", TOLERANCES["fp32"])  # type: ignore[arg-type]
