"""OpenNMT-py checkpoints against CTranslate2, whose own converter reads the same file; and what is refused of them."""

import json
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2.converters import OpenNMTPyConverter

from export.importers.command import import_model
from export.importers.foreign import ForeignModelError, ImportOptions
from export.importers.opennmt_py import read_opennmt_py
from export.verify import reference_model
from model.config import Activation, ModelConfig
from model.tokenizer import load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.tiny_model import tiny_model
from tests.parity.model_pair import is_near_tie, num_sentences

OPTIONS = ImportOptions(source_language="en", target_language="de", name="mine")
SIZES: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
CONFIGS = {
    "apart": ModelConfig(
        **SIZES,
        vocab_size=50,
        target_vocab_size=40,
        shared_embeddings=False,
        tied_projection=False,
        projection_bias=True,
        position_table=True,
        max_positions=64,
    ),
    "tied, swish": ModelConfig(
        **SIZES, vocab_size=50, projection_bias=True, position_table=True, max_positions=64, activation=Activation.SWISH
    ),
}
NAMES = {
    "encoder.layers": "encoder.transformer",
    "decoder.layers": "decoder.transformer_layers",
    "cross_attention_norm": "layer_norm_2",
    "feed_forward_norm": "feed_forward.layer_norm",
    "self_attention.": "self_attn.",
    "cross_attention.": "context_attn.",
    ".query": ".linear_query",
    ".key": ".linear_keys",
    ".value": ".linear_values",
    ".output": ".final_linear",
    ".inner": ".w_1",
    ".outer": ".w_2",
    "encoder.norm": "encoder.layer_norm",
    "decoder.norm": "decoder.layer_norm",
}


def tokens_of(size: int) -> list[str]:
    return ["<unk>", "<blank>", "<s>", "</s>", *(f"w{number}" for number in range(4, size))]


def write(directory: Path, config: ModelConfig, *, parts: Any = (), **options: Any) -> Path:
    """Write random weights as `model.pt`, without biases in the attention, as of version 3; return the path."""
    state, tensors = tiny_model(config, seed=3).state_dict(), {}
    for key, tensor in state.items():
        name = key.replace("self_attention_norm", "layer_norm_1" if key.startswith("decoder") else "layer_norm")
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        is_unused = name.endswith(("linear_query.bias", "linear_keys.bias", "final_linear.bias"))
        if (".layers." in key or ".norm." in key) and not is_unused:
            tensors[name] = tensor
    target = state["embedding.weight" if config.shared_embeddings else "target_embedding.weight"]
    for stack, table in (("encoder", state["embedding.weight"]), ("decoder", target)):
        tensors[f"{stack}.embeddings.make_embedding.emb_luts.0.weight"] = table
        tensors[f"{stack}.embeddings.make_embedding.pe.pe"] = state["positions"][:, None]
    generator = {"weight": state.get("projection.weight", target), "bias": state["projection_bias"]}
    opt = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "position_encoding": True,
        "enc_layers": 2,
        "dec_layers": 2,
        "heads": config.num_heads,
        "transformer_ff": config.d_ff,
        "pos_ffn_activation_fn": "silu" if config.activation is Activation.SWISH else "relu",
        **options,
    }
    vocabulary = {"src": tokens_of(config.vocab_size), "tgt": tokens_of(config.num_target_tokens)}
    checkpoint = {"model": tensors, "generator": generator, "vocab": vocabulary, "opt": Namespace(**opt)}
    torch.save({**checkpoint, **dict(parts)}, directory / "model.pt")
    return directory / "model.pt"


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_random_sentences_get_ctranslate2s_tokens_and_scores(config: ModelConfig, tmp_path: Path) -> None:
    path, neighbour = write(tmp_path, config), tmp_path / "neighbour"
    with torch.serialization.safe_globals([Namespace]):
        OpenNMTPyConverter(str(path)).convert(str(neighbour))
    settings = json.loads((neighbour / "config.json").read_text())
    (neighbour / "config.json").write_text(json.dumps({**settings, "layer_norm_epsilon": 1e-6}))
    translator = ctranslate2.Translator(str(neighbour), compute_type="float32", intra_threads=1)
    bundle, converted = (
        import_model(path, tmp_path / f"bundle-{path.name}", OPTIONS) for path in (tmp_path, neighbour)
    )
    (tmp_path / "scratch").mkdir()
    source = read_opennmt_py(tmp_path, OPTIONS, tmp_path / "scratch")
    reference = reference_model(source.config, source.state)
    tokenizer, names = load_tokenizer(bundle.directory, bundle.manifest.tokenizer), tokens_of(50)
    choice = random.Random(7)
    texts = [[f"w{choice.randint(4, 55)}" for _ in range(choice.randint(1, 15))] for _ in range(num_sentences(20))]
    sources = [tokenizer.encode(" ".join(text)) for text in texts]

    for beam_size in (1, 4, 6):
        params = SearchParams(beam_size=beam_size, max_target_tokens=20)
        ours, again = (translate(CpuRunner(one), sources, params) for one in (bundle, converted))
        theirs = translator.translate_batch(
            texts, beam_size=beam_size, max_decoding_length=20, min_decoding_length=0, return_scores=True
        )
        for text, (best, *_), found in zip(texts, ours, theirs, strict=True):
            if [names[token] for token in best.token_ids] == found.hypotheses[0]:
                assert best.score == pytest.approx(found.scores[0], abs=1e-4)
            else:
                assert is_near_tie(reference, bundle, tokenizer.encode(" ".join(text)), params)
        assert [best.token_ids for best, *_ in again] == [best.token_ids for best, *_ in ours]
    assert len({tuple(found.hypotheses[0]) for found in theirs}) >= 8


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decoder_type": "transformer_lm"}, "decoder_type is 'transformer_lm', only transformer is supported"),
        ({"max_relative_positions": 20}, "max_relative_positions is 20"),
        ({"pos_ffn_activation_fn": "fast_gelu"}, "supported are relu, gelu, silu"),
        ({"heads": "x"}, "heads is 'x', it must be an integer"),
        ({"position_encoding": False}, "position_encoding is False, only True is supported"),
        ({"norm_eps": "x"}, "norm_epsilon is 'x'"),
        ({"dec_layers": 1}, "tensors that are not understood: decoder.transformer_layers.1"),
        ({"enc_layers": 3}, "has no tensor 'encoder.transformer.2.layer_norm.weight'"),
        ({"transformer_ff": 64}, "w_1.bias has shape (32,), its settings say (64,)"),
        ({"parts": {"vocab": {"src": ["<unk>"], "tgt": []}}}, "no token '<s>'"),
        ({"parts": {"vocab": {"src": 1}}}, "vocabulary src is no list of tokens"),
        ({"parts": {"opt": {}}}, "a part has another type"),
        ({"parts": {"model": {"a": 1}}}, "parameters that are no tensors"),
        ({"parts": {"model": {}}}, "does not have the embeddings"),
        ({"parts": {"vocab": Bomb()}}, "damaged, or holds more than tensors"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, changed: Any, message: str) -> None:
    path = write(tmp_path, CONFIGS["apart"], **changed)

    with pytest.raises(ForeignModelError) as refused:
        read_opennmt_py(tmp_path, OPTIONS, tmp_path)

    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not Path("exploded").exists()
