"""The parts of the benchmarks that decide."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from export.linear import State
from export.verify import reference_model
from model.bundle import Bundle, default_bundle_dir
from model.config import ModelConfig, NormPlacement
from service.loadtest.records import summarize
from tests.bench.bench_capacity import Capacity, card
from tests.bench.bench_gpu import floor_bytes, launches
from tests.bench.bench_race import sweep, usual_cells
from tests.bench.race.regimes import climb
from tests.bench.race.shapes import BIAS, base_shape, positions_of
from tests.fakes.ended_calls import records
from tests.fakes.tiny_model import padded, random_sentences, state_of, tiny_config, tiny_model


@pytest.mark.parametrize("guess", [-30, 12, 13, 14, 60])
def test_climbing_finds_the_limit_from_any_guess(guess):
    asked: list[int] = []

    def is_sustained(rung: int) -> bool:
        asked.append(rung)
        return rung <= 13

    assert climb(guess, is_sustained) == 13
    assert len(set(asked)) == len(asked)


def test_climbing_ends_where_there_is_no_limit():
    with pytest.raises(RuntimeError, match="no limit between"):
        climb(0, lambda _: True)


@dataclass(frozen=True)
class Setting:
    width: int = 1
    depth: int = 1

    def close(self) -> None:
        pass


def test_a_sweep_tries_each_choice_from_the_best_so_far():
    class Side:
        usual = Setting()

        def choices(self, *_: Any) -> list[list[dict[str, int]]]:
            return [[{"width": 1}, {"width": 3}], [{"depth": 2}, {"depth": 5}]]

    costs = sweep(Side(), "closed", [], lambda setting: setting, lambda it: abs(it.width - 3) + abs(it.depth - 2))

    assert list(costs) == [Setting(1, 1), Setting(3, 1), Setting(3, 2), Setting(3, 5)]
    assert min(costs, key=costs.__getitem__) == Setting(3, 2)


def test_the_usual_race_has_every_regime_and_no_shortlist_where_there_is_none():
    with_lists, without = (usual_cells("text", "default", has_shortlist=has) for has in (True, False))

    assert {cell.regime for cell in without} == {"single", "closed", "stream"}
    assert {cell.shortlist for cell in without} == {"none"}
    assert len(with_lists) == len(without) + 4 == len(set(with_lists))


def logits(config: ModelConfig, state: State) -> torch.Tensor:
    source, lengths = padded(random_sentences(tiny_config(), (9, 3, 14)))
    targets = np.random.default_rng(1).integers(4, tiny_config().vocab_size, (3, 7))
    with torch.inference_mode():
        found: torch.Tensor = reference_model(config, state)(*map(torch.from_numpy, (source, lengths, targets)))
    return found


def test_the_races_larger_model_computes_what_the_smaller_one_does():
    config = tiny_config()
    state = state_of(tiny_model(config))
    base = base_shape(config, state, layers=5, vocabulary=100)

    narrow = logits(config, state)
    with positions_of(base):
        wide = logits(base.config, base.state)

    torch.testing.assert_close(wide[..., : config.vocab_size], narrow, atol=1e-4, rtol=0)
    added = wide[..., config.vocab_size :]
    torch.testing.assert_close(added, torch.full_like(added, BIAS.logit), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("norm", "layers"), [(NormPlacement.POST, 6), (NormPlacement.PRE, 1)])
def test_a_model_that_cannot_be_made_larger_is_refused(norm, layers):
    config = tiny_config(norm)

    with pytest.raises(ValueError, match=r"only a pre-norm model|more than 1 layers"):
        base_shape(config, state_of(tiny_model(config)), layers=layers)


def test_the_capacity_card_says_what_failed_and_its_tables_are_even():
    summary = summarize(records(range(4), [0.02] * 4, ["OK"] * 3 + ["RESOURCE_EXHAUSTED"]), 4.0)
    machine: dict[str, Any] = dict.fromkeys(
        ("cpu", "cpus", "ram_gib", "load_average", "python", "onnxruntime", "numpy"), "x"
    )
    machine |= {"int8_instructions": [], "commit": "abc", "uncommitted_changes": True}
    facts = {"command": "it", "date": "day", "minutes": 1, "model": "en-de 1", "num_engines": 2, "stage_s": 10.0}
    measured = {"num_stages": 3, "num_late": 0, "start_s": [1.0, 2.0], "memory": ["a", "b"]}
    capacities = [Capacity("beam 4", 150.0, {32: summary}, {0.5: summary}), Capacity("beam 1")]

    page = card({**facts, **measured, "machine": machine, "capacities": capacities})

    assert "| commit | abc, with changes |" in page
    assert "| beam 1 | none |" in page
    assert "| beam 4 | 32 | 1 (1 of 4 failed) | 20 | 20 | 20 |" in page
    for block in page.split("\n\n"):
        assert len({line.count("|") for line in block.splitlines() if line.startswith("|")}) <= 1, block


def test_operators_and_kernels_of_a_gpus_step_are_counted(tmp_path):
    path = tmp_path / "profile.json"
    nodes = [("MatMul", 5), ("MatMul", 7), ("Reshape", 1), ("Add", 2)]
    events: list[dict[str, Any]] = [
        {"cat": "Node", "name": f"{name}_1_kernel_time", "dur": spent, "args": {"op_name": name}}
        for name, spent in nodes
    ]
    path.write_text(json.dumps([*events, {"cat": "Session"}, {"cat": "Kernel", "name": "gemm"}] * 2))

    found = launches(path, num_steps=2)

    assert found.operators == {"MatMul": 2.0, "Add": 1.0}  # without those that launch nothing
    assert found.microseconds == {"MatMul": 12.0, "Add": 2.0, "Reshape": 1.0}
    assert found.kernels == 1.0


def test_a_step_reads_the_decoders_weights_once_and_every_sentences_columns():
    bundle = Bundle.load(default_bundle_dir())

    none, some = (floor_bytes(bundle, rows, 4, source_tokens=20, target_tokens=20) for rows in (0, 400))

    decoder = 2 * (6 * 256 * 256 + 2 * 256 * 1_024) + 8_000 * 256  # products of two layers, and the vocabulary
    assert none == 2 * decoder
    assert some == 2 * (decoder + 400 * 1_024 * 10 + 100 * 1_024 * 20)
