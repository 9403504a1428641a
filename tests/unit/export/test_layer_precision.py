"""Layers that lose too much as int8 keep float weights; calibration can do without text."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from export.calibrate import MAX_DIVERGENCE, activation_scales, layer_precisions, observe
from export.importers.command import Format, import_model
from export.importers.foreign import ImportOptions
from export.linear import Int8Products
from export.onnx_export import LAYERS_NAME, write_graphs
from export.samples import PROMPTS
from export.verify import compare, reference_model, translated_samples
from tests.fakes.tiny_model import random_sentences, state_of, tiny_config, tiny_model
from tests.parity.marian_model import write_marian

SPOILED = "decoder.layers.0.feed_forward.inner"


def test_a_layer_that_int8_destroys_stays_float_and_only_that(tmp_path: Path) -> None:
    """One input that is always zero has weights so large that an int8 scale leaves nothing of the others."""
    config = tiny_config()
    state = {name: np.array(array) for name, array in state_of(tiny_model(config)).items()}
    state[f"{SPOILED}.weight"][:, 0] *= 1_000.0
    for part in ("weight", "bias"):
        state[f"decoder.layers.0.feed_forward_norm.{part}"][0] = 0.0
    sentences = random_sentences(config, lengths=range(2, 20))

    seen = observe(config, state, sentences)
    scales = activation_scales(seen)
    layers = layer_precisions(seen, scales, MAX_DIVERGENCE)

    assert [layer.layer for layer in layers if layer.is_float] == [SPOILED]
    assert {layer.layer for layer in layers} == set(scales)
    found = {}
    for name, kept in (("all", scales), ("some", {layer: scales[layer] for layer in scales if layer != SPOILED})):
        runner = write_graphs(config, state, Int8Products(kept), tmp_path / name)
        samples = translated_samples(runner, config, sentences)
        found[name] = compare(runner, reference_model(config, state), samples).mean_difference
    assert found["some"] < found["all"] / 3
    graph = onnx.load(str(tmp_path / "some" / "decoder_step.onnx"), load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert types[f"{SPOILED}.weight"] == TensorProto.FLOAT16


def test_an_import_without_text_has_int8_graphs_a_report_and_golden_sentences(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    model = write_marian(tmp_path, tiny_tokenizer_path)
    bundle = import_model(model.directory, tmp_path / "bundle", ImportOptions(), Format.MARIAN, ("int8",))

    rows = [line.split("\t") for line in bundle.path(f"int8/{LAYERS_NAME}").read_text().splitlines()]
    assert {len(row) for row in rows} == {3}
    assert {row[2] for row in rows} == {"int8"}
    assert bundle.manifest.exported_with["calibration_sentences"] == "32"
    assert {sentence.source for sentence in bundle.golden_sentences("int8")} <= set(PROMPTS)
