"""Random weights in Marian's own format, with vocabularies, and the same as a CTranslate2 model: the neighbour.

Not a test.  CTranslate2's own converter reads the .npz file.  Its sinusoids have another rate than Marian's and its
norms another epsilon, so that its copy gets both from here.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ctranslate2.converters import MarianConverter
from numpy.typing import NDArray

from export.linear import State
from model.config import Architecture, ModelConfig, NormPlacement
from model.transformer import Transformer
from tests.fakes.tiny_model import state_of, tiny_model

SIZES: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
# What YAML could take for something else stands among the words.
WORDS = ["</s>", "<unk>", "null", "yes", "~", "12", "<<", "a:b", '"', "'", "\\", "- x", "#", "{"]


def tokens_of_vocabulary(size: int) -> list[str]:
    """Tokens by id, end-of-sentence first."""
    return [*WORDS, *(f"w{number}" for number in range(len(WORDS), size))]


def marian_config(num_source: int = 60, **settings: Any) -> ModelConfig:
    """Return the description of a model before an importer has added a token that starts the decoder."""
    return ModelConfig(
        **{**SIZES, "vocab_size": num_source, "projection_bias": True, "norm_epsilon": 1e-6, "eos_id": 0, **settings}
    )


def write_marian_npz(directory: Path, config: ModelConfig, **changed: Any) -> Transformer:
    """Write `model.npz`, vocabularies and `decoder.yml`; return the model, whose positions are not Marian's.

    Args:
        directory: where the files go.
        config: of the model.
        changed: settings in `special:model.yml`.
    """
    model = tiny_model(config, seed=3)
    sizes = [config.vocab_size] if config.shared_embeddings else [config.vocab_size, config.num_target_tokens]
    names = [f"vocab{number}.yml" for number in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        lines = (f"{json.dumps(token)}: {number}\n" for number, token in enumerate(tokens_of_vocabulary(size)))
        (directory / name).write_text("".join(lines))
    decoder = {"models": ["/training/model.npz"], "vocabs": [f"/training/{name}" for name in names] * (3 - len(names))}
    (directory / "decoder.yml").write_text(yaml.safe_dump({**decoder, "beam-size": 6, "normalize": 0.6}))
    arrays = {**arrays_of(config, state_of(model)), "special:model.yml": settings_of(config, **changed)}
    np.savez(directory / "model.npz", **arrays)
    return model


def write_ctranslate2(directory: Path, destination: Path, config: ModelConfig) -> Path:
    """Convert the model in a directory with CTranslate2's converter."""
    with np.load(directory / "model.npz") as arrays:
        np.savez(directory / "neighbour.npz", **arrays, Wpos=positions(128, config.d_model))
    vocabularies = sorted(directory.glob("vocab*.yml"))
    MarianConverter(str(directory / "neighbour.npz"), list(map(str, vocabularies))).convert(str(destination))
    (directory / "neighbour.npz").unlink()
    settings = json.loads((destination / "config.json").read_text())
    (destination / "config.json").write_text(json.dumps({**settings, "layer_norm_epsilon": 1e-6}))
    return destination


def positions(num_positions: int, d_model: int) -> NDArray[np.float32]:
    """Marian's position table, number by number as in its SinusoidalPositionEmbeddings."""
    half = d_model // 2
    table = np.zeros((num_positions, d_model), np.float32)
    for step in range(num_positions):
        for column in range(d_model):
            angle = step * math.exp(column % half * -math.log(10_000.0) / (half - 1))
            table[step, column] = math.sin(angle) if column < half else math.cos(angle)
    return table


def settings_of(config: ModelConfig, **changed: Any) -> NDArray[np.int8]:
    """What Marian keeps of its options in a model."""
    is_pre = config.norm_placement is NormPlacement.PRE
    settings = {
        "type": "transformer",
        "dim-emb": config.d_model,
        "transformer-dim-ffn": config.d_ff,
        "transformer-heads": config.num_heads,
        "enc-depth": config.num_encoder_layers,
        "dec-depth": config.num_decoder_layers,
        "transformer-decoder-autoreg": "rnn" if config.architecture is Architecture.SSRU else "self-attention",
        "dec-cell": "ssru",
        "transformer-ffn-activation": config.activation.value,
        "transformer-ffn-depth": 2,
        "transformer-no-projection": False,
        "transformer-preprocess": "n" if is_pre else "",
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-top": "n" if config.has_final_norm else "",
        "transformer-postprocess-emb": "nd" if config.embedding_norm else "d",
        "transformer-guided-alignment-layer": "last",
        "transformer-tied-layers": [],
        "vocabs": ["gone.yml", "gone.yml"],
        **changed,
    }
    return np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)


def arrays_of(config: ModelConfig, state: State) -> dict[str, Any]:
    """The parameters under Marian's names."""
    arrays: dict[str, Any] = {}

    def linear(key: str, name: str, suffix: str) -> None:
        arrays[f"{name}_W{suffix}"] = np.ascontiguousarray(state[f"{key}.weight"].T)
        arrays[f"{name}_b{suffix}"] = state[f"{key}.bias"][None]

    def norm(key: str, name: str, suffix: str) -> None:
        arrays[f"{name}_scale{suffix}"] = state[f"{key}.weight"][None]
        arrays[f"{name}_bias{suffix}"] = state[f"{key}.bias"][None]

    suffix = "_pre" if config.norm_placement is NormPlacement.PRE else ""
    for stack, depth in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for number in range(depth):
            key, name = f"{stack}.layers.{number}", f"{stack}_l{number + 1}"
            is_ssru = stack == "decoder" and config.architecture is Architecture.SSRU
            if is_ssru:
                norm(f"{key}.self_attention_norm", f"{name}_rnn{'' if suffix else '_ffn'}_ln", suffix)
                linear(f"{key}.self_attention.input", f"{name}_rnn", "")
                linear(f"{key}.self_attention.forget", f"{name}_rnn", "f")
                del arrays[f"{name}_rnn_b"]  # Marian has none
            parts = {} if is_ssru else {"self_attention": "self"}
            for ours, theirs in (parts | ({"cross_attention": "context"} if stack == "decoder" else {})).items():
                norm(f"{key}.{ours}_norm", f"{name}_{theirs}_Wo_ln", suffix)
                for part in ("query", "key", "value", "output"):
                    linear(f"{key}.{ours}.{part}", f"{name}_{theirs}", part[0])
            norm(f"{key}.feed_forward_norm", f"{name}_ffn_ffn_ln", suffix)
            linear(f"{key}.feed_forward.inner", f"{name}_ffn", "1")
            linear(f"{key}.feed_forward.outer", f"{name}_ffn", "2")
        if config.embedding_norm:
            norm(f"{stack}.embedding_norm", f"{stack}_emb_ln", "_pre")
        if config.has_final_norm:
            norm(f"{stack}.norm", f"{stack}_top_ln", "")
    tables = {"Wemb": "embedding"}
    if not config.shared_embeddings:
        tables = {"encoder_Wemb": "embedding", "decoder_Wemb": "target_embedding"}
    arrays |= {name: state[f"{key}.weight"] for name, key in tables.items()}
    if not config.tied_projection:
        arrays["decoder_ff_logit_out_W"] = np.ascontiguousarray(state["projection.weight"].T)
    arrays["decoder_ff_logit_out_b"] = state["projection_bias"][None]
    return arrays
