"""A CPU without int8 dot products runs other kernels and gives the same translations."""

import platform

import onnx
import onnxruntime as ort
import pytest

from model.bundle import Bundle
from model.transformer import Transformer
from service.engine.choice import cpu_flags, multiplies_int8_exactly
from service.engine.cpu import runner
from service.engine.cpu.runner import CpuRunner, session_options
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle

PARAMS = SearchParams(beam_size=4, max_target_tokens=20)
WITH_DOT_PRODUCTS, WITHOUT = frozenset({"avx2", "avx512_vnni"}), frozenset({"avx2"})


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model(tiny_config(vocab_size=VOCABULARY))


@pytest.fixture(scope="module")
def bundle(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("bundles") / "tiny", ("int8",))


@pytest.mark.skipif(not multiplies_int8_exactly(cpu_flags()), reason="this CPU has no int8 dot products")
def test_both_kinds_of_cpu_get_the_same_translations_and_scores(monkeypatch, bundle, model):
    sources = random_sentences(model.config, range(2, 12))

    monkeypatch.setattr(runner, "cpu_flags", lambda: WITH_DOT_PRODUCTS)
    with_dot_products = translate(CpuRunner(bundle), sources, PARAMS)
    monkeypatch.setattr(runner, "cpu_flags", lambda: WITHOUT)

    assert translate(CpuRunner(bundle), sources, PARAMS) == with_dot_products


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 saturates")
@pytest.mark.parametrize("graph", ["encoder", "decoder_step"])
def test_no_product_keeps_signed_weights_where_they_may_saturate(bundle, graph, tmp_path):
    options = session_options(1, WITHOUT)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    path = bundle.path(getattr(bundle.variant(), graph))
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in optimized.initializer}
    products = [node for node in optimized.node if "MatMulInteger" in node.op_type]
    assert products
    assert {types[node.input[1]] for node in products} == {onnx.TensorProto.UINT8}
