"""Models small enough for a unit test: random parameters, a tokenizer, a checkpoint, a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from export.builder import Array
from export.calibrate import activation_scales, observe
from export.heads import usual_heads
from export.linear import FloatProducts, Int8Products, Products, State
from export.onnx_export import write_graphs
from export.runner import GraphRunner
from model.bundle import Bundle, staging_directory, write_bundle
from model.checkpoint import Checkpoint, CheckpointMeta, save_checkpoint
from model.config import Architecture, ModelConfig, NormPlacement
from model.manifest import AlignmentHeads, DecodingDefaults, Manifest, Variant
from model.recurrent import Recurrent
from model.shortlist import SHORTLIST_NAME, Shortlist
from model.tokenizer import train_tokenizer
from model.transformer import Transformer

SENTENCES = [
    f"{subject} {verb} {place}."
    for subject in ("The dog", "A child", "Some children", "Der Hund", "Ein Kind")
    for verb in ("plays in", "sleeps near", "spielt in", "is eating")
    for place in ("the park", "his house", "dem Garten", "water, quickly", "number 7 (seven)")
]


def tiny_config(placement: NormPlacement = NormPlacement.PRE, *, vocab_size: int = 60) -> ModelConfig:
    """Two encoder layers, two decoder layers, width 32."""
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_encoder_layers=2,
        num_decoder_layers=2,
        norm_placement=placement,
        max_positions=64,
    )


def tiny_recurrent_model(architecture: Architecture, seed: int = 0) -> Recurrent:
    """Two layers either side, width 32; random parameters, large enough that what was read and written matters."""
    config = ModelConfig(
        architecture=architecture,
        vocab_size=VOCABULARY,
        d_model=32,
        num_heads=1,
        num_encoder_layers=2,
        num_decoder_layers=2,
        max_positions=64,
    )
    model = Recurrent(config).initialize(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


def tiny_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """Random parameters, biases and norms included, large enough that attention is not uniform."""
    model = Transformer(config).initialize(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
            elif "query" in name or "key" in name:
                parameter.mul_(2.0)
            elif "relative_bias" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        if config.position_table:
            model.positions.copy_(torch.randn(model.positions.shape, generator=generator))
        if config.separate_positions:
            model.target_positions.copy_(torch.randn(model.positions.shape, generator=generator))
    return model.eval()


def state_of(model: Transformer | Recurrent) -> State:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


@dataclass(frozen=True)
class TinyGraphs:
    """A random model and its graphs in one precision."""

    model: Transformer
    directory: Path
    runner: GraphRunner

    @property
    def config(self) -> ModelConfig:
        return self.model.config


def tiny_graphs(
    directory: Path,
    precision: str,
    placement: NormPlacement = NormPlacement.PRE,
    *,
    vocab_size: int = 60,
    config: ModelConfig | None = None,
) -> TinyGraphs:
    """Write and open the graphs of a random model."""
    model = tiny_model(config or tiny_config(placement, vocab_size=vocab_size))
    state = state_of(model)
    runner = write_graphs(model.config, state, _products(precision, model.config, state), directory / precision)
    return TinyGraphs(model, directory / precision, runner)


def _products(precision: str, config: ModelConfig, state: State) -> Products:
    if precision == "fp32":
        return FloatProducts()
    return Int8Products(activation_scales(observe(config, state, random_sentences(config, lengths=range(2, 20)))))


def random_sentences(config: ModelConfig, lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Source ids of the given lengths, end-of-sentence last."""
    random, first = np.random.default_rng(seed), config.eos_id + 1
    return [[*random.integers(first, config.vocab_size, length - 1).tolist(), config.eos_id] for length in lengths]


def padded(sentences: Sequence[Sequence[int]], num_columns: int | None = None) -> tuple[Array, Array]:
    """Source ids [B, S], zeros on the right, and lengths [B]."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int32)
    source = np.zeros((len(sentences), num_columns or lengths.max()), np.int64)
    for row, sentence in zip(source, sentences, strict=True):
        row[: len(sentence)] = sentence
    return source, lengths


def write_tiny_checkpoint(directory: Path) -> Path:
    """A checkpoint directory as training leaves it, with random weights and a real tokenizer."""
    directory.mkdir(parents=True)
    tokenizer_path = directory / "trained.spm"
    tokenizer = train_tokenizer(SENTENCES, tokenizer_path, vocab_size=80, model_type="bpe")
    model = tiny_model(tiny_config(vocab_size=tokenizer.vocab_size))
    meta = CheckpointMeta(name="tiny", source_language="en", target_language="de")
    checkpoint = Checkpoint(config=model.config, meta=meta, weights=model.state_dict(), tokenizer_path=tokenizer_path)
    save_checkpoint(directory / "average", checkpoint)
    return directory / "average"


VOCABULARY = 80


def write_tiny_bundle(
    model: Transformer | Recurrent,
    destination: Path,
    precisions: Sequence[str] = ("fp32",),
    shortlist: Shortlist | None = None,
    *,
    alignment: AlignmentHeads | None = None,
    has_scorer: bool = True,
) -> Bundle:
    """Write graphs of the model, which has VOCABULARY tokens, and a tokenizer of the same size."""
    with staging_directory(destination) as staging:
        train_tokenizer(SENTENCES, staging / "shared.spm", vocab_size=VOCABULARY, model_type="bpe")
        for precision in precisions:
            write_graphs(
                model.config,
                state_of(model),
                _products(precision, model.config, state_of(model)),
                staging / precision,
                alignment,
            )
        if shortlist is not None:
            shortlist.save(staging / SHORTLIST_NAME)
        manifest = _manifest(model, precisions, SHORTLIST_NAME if shortlist else "")
        if isinstance(model, Transformer):
            manifest = replace(manifest, alignment=alignment or usual_heads(model.config))
        if not has_scorer:
            variants = {precision: replace(variant, scorer="") for precision, variant in manifest.variants.items()}
            manifest = replace(manifest, variants=variants, alignment=None)
        return write_bundle(staging, destination, manifest)


def _manifest(model: Transformer | Recurrent, precisions: Sequence[str], shortlist: str) -> Manifest:
    limit, graphs = model.config.max_positions, ["encoder", "decoder_step"]
    if isinstance(model, Transformer):
        graphs.append("scorer")
    return Manifest(
        name="tiny",
        version="0",
        source_language="en",
        target_language="de",
        config=model.config,
        decoding=DecodingDefaults(max_target_tokens=limit, max_source_tokens=limit),
        variants={
            precision: Variant(
                **dict[str, Any]({name: f"{precision}/{name}.onnx" for name in graphs}),
                repetition_penalty=True,
                attention_weights="scorer" in graphs,
            )
            for precision in precisions
        },
        shortlist=shortlist,
    )
