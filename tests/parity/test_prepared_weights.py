"""Graphs with packed weights translate bit for bit as those of the bundle do."""

from pathlib import Path

import onnx
import pytest

from model.bundle import Bundle, default_bundle_dir
from service.engine.cpu import session
from service.engine.cpu.prepare import prepare_graphs
from service.engine.cpu.runner import CpuRunner
from service.engine.job import SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.int8_products import HAS_INT8_PRODUCTS

SOURCES = ([40, 61, 7, 3], [9, 3], [71, 80, 94, 100, 65, 12, 3])


def translations(runner: CpuRunner) -> list[object]:
    """Tokens and scores, of all tokens, of a shortlist's and of a given translation."""
    params = SearchParams(beam_size=4, num_hypotheses=4, max_target_tokens=20)
    found: list[object] = [
        translate(runner, SOURCES, params._replace(use_shortlist=shortlist)) for shortlist in (False, True)
    ]
    if runner.has_scorer:
        found.append(runner.score([(runner.encode(SOURCES[:1]), 0)], [(40, 61, 7)]))
    return found


def prepared_graphs(directory: Path) -> int:
    return len(list(directory.glob("*/*.onnx")))


# A shortlist has a graph of its own; that of int8 is used where the CPU has the products.
@pytest.mark.parametrize(("precision", "num_graphs"), [("int8", 2 + HAS_INT8_PRODUCTS), ("fp32", 2)])
def test_prepared_graphs_give_the_same_tokens_and_the_same_scores(trained_bundles, precision, num_graphs, tmp_path):
    bundle = Bundle.load(trained_bundles[precision])

    prepare_graphs(bundle, precision, tmp_path)
    prepared = CpuRunner(bundle, precision=precision, prepared_dir=tmp_path)

    assert prepared_graphs(tmp_path) == num_graphs + bool(bundle.variant(precision).scorer)
    assert translations(prepared) == translations(CpuRunner(bundle, precision=precision))


def test_so_they_do_on_a_cpu_without_exact_int8_products(trained_bundles, tmp_path, monkeypatch):
    bundle = Bundle.load(trained_bundles["int8"])
    monkeypatch.setattr(session, "cpu_flags", lambda: frozenset({"avx2"}))

    prepare_graphs(bundle, "int8", tmp_path)
    prepared = CpuRunner(bundle, precision="int8", prepared_dir=tmp_path)

    assert prepared_graphs(tmp_path) == 2 + bool(bundle.variant("int8").scorer)  # no shortlist there
    assert translations(prepared) == translations(CpuRunner(bundle, precision="int8"))


def places(graph: Path) -> dict[str, dict[str, str]]:
    """Where the weights lie that are packed, by name."""
    tensors = onnx.load(str(graph), load_external_data=False).graph.initializer
    found = {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in tensors}
    return {name: place for name, place in found.items() if "prepacked_0" in place}


def test_weights_of_step_and_scorer_lie_in_one_file_once(tmp_path):
    bundle = Bundle.load(default_bundle_dir(), verify=False)

    prepare_graphs(bundle, "int8", tmp_path)

    step, scorer = (places(tmp_path / "int8" / f"{name}.onnx") for name in ("decoder_step", "scorer"))
    assert [path.name for path in tmp_path.glob("int8/*.data")] == ["weights.data"]
    common = {name for name in step if name.startswith("decoder.layers.")}
    assert common
    assert {name: step[name] for name in common} == {name: scorer[name] for name in common}
    of_step, of_scorer = ({place["prepacked_0"] for place in graph.values()} for graph in (step, scorer))
    assert of_step == of_scorer  # the projection, too, which each graph transposes under a name of its own
