"""Our weights as a CTranslate2 model, through its public specification API: the neighbour that tests compare with.

Not a test.  Weights stay float32; the position table is given explicitly, since CTranslate2's own has another order.
A model may have more tokens than its tokenizer has pieces: the benchmarks' larger model does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import sentencepiece
from ctranslate2.specs import common_spec, transformer_spec
from numpy.typing import NDArray

from export.transformer_graph import logits_bias
from model.config import Activation, ModelConfig, NormPlacement
from model.layers import sinusoidal_positions

State = Mapping[str, NDArray[np.float32]]

_ACTIVATIONS = {
    Activation.RELU: common_spec.Activation.RELU,
    Activation.SWISH: common_spec.Activation.SWISH,
    Activation.GELU: common_spec.Activation.GELU,
}


def write_ctranslate2_model(
    config: ModelConfig,
    state: State,
    tokenizer: Path | None,
    directory: Path,
    *,
    quantization: str | None = None,
) -> Path:
    """Write a model that `ctranslate2.Translator(str(directory))` loads, and return the directory.

    Args:
        config: the model's shape.
        state: its parameters, named as in `model/transformer.py`.
        tokenizer: the shared SentencePiece model; its pieces become both vocabularies.  None: those of `numbered`.
        directory: is created; must not exist.
        quantization: type of the weights in the file, such as int8; None: float32.
    """
    if config.position_table:
        positions = state["positions"]
    else:
        positions = sinusoidal_positions(config.max_positions, config.d_model).numpy()
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_placement is NormPlacement.PRE,
        activation=_ACTIVATIONS[config.activation],
        layernorm_embedding=config.embedding_norm,
    )
    for stack, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        stack.scale_embeddings = config.scaled_embeddings
        own = "target_positions" if config.separate_positions and name == "decoder" else ""
        stack.position_encodings.encodings = state[own] if own else positions
        set_stack(stack, config, state, name)
    spec.encoder.embeddings[0].weight = state["embedding.weight"]
    spec.decoder.embeddings.weight = state[f"{config.target_table}.weight"]
    spec.decoder.projection.weight = state[f"{config.projection_table}.weight"]
    bias = logits_bias(config, state)
    if bias is not None:
        spec.decoder.projection.bias = bias[: config.num_target_tokens]
    if tokenizer is None:
        _set_vocabularies(spec, config, numbered(config.vocab_size), numbered(config.num_target_tokens))
    else:
        names = token_names(tokenizer, config.vocab_size)
        _set_vocabularies(spec, config, names, names)
    directory.mkdir(parents=True)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(directory))
    return directory


def translate_with_ctranslate2(
    directory: Path, tokenizer: Path, sources: Sequence[Sequence[int]], **options: Any
) -> list[list[tuple[list[int], float]]]:
    """For each source, its hypotheses as (token ids without end-of-sentence, score), best first.

    Args:
        directory: from `write_ctranslate2_model`.
        tokenizer: the same SentencePiece model.
        sources: token ids, each ending with end-of-sentence.
        **options: of `ctranslate2.Translator.translate_batch`, such as `beam_size`.  CTranslate2 forbids an empty
            translation unless told otherwise; here, as in this project, it may be empty.
    """
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32", intra_threads=1)
    names = pieces(tokenizer)
    ids = {piece: token for token, piece in enumerate(names)}
    tokens = [[names[token] for token in source] for source in sources]
    options = {"min_decoding_length": 0, "return_scores": True, **options}
    results = translator.translate_batch(tokens, **options)
    return [
        [
            ([ids[piece] for piece in hypothesis], score)
            for hypothesis, score in zip(result.hypotheses, result.scores, strict=True)
        ]
        for result in results
    ]


def pieces(tokenizer: Path) -> list[str]:
    """The pieces of a SentencePiece model, by id."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    return [processor.id_to_piece(token) for token in range(processor.get_piece_size())]


def token_names(tokenizer: Path, vocab_size: int) -> list[str]:
    """The pieces by id, and names for the tokens that the tokenizer does not know."""
    names = pieces(tokenizer)
    return [*names, *(f"<added-{token}>" for token in range(len(names), vocab_size))]


def numbered(num_tokens: int) -> list[str]:
    """Names of the tokens of a vocabulary without pieces."""
    return [str(token) for token in range(num_tokens)]


def _set_vocabularies(spec: Any, config: ModelConfig, source: list[str], target: list[str]) -> None:
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token = source[config.unk_id]
    spec.config.bos_token = target[config.start_id]
    spec.config.decoder_start_token = target[config.start_id]
    spec.config.eos_token = target[config.eos_id]
    spec.config.layer_norm_epsilon = config.norm_epsilon


def set_stack(spec: Any, config: ModelConfig, state: State, name: str) -> None:
    """The layers of an encoder or a decoder, and with pre-norm the last norm."""
    for number, layer in enumerate(spec.layer):
        prefix = f"{name}.layers.{number}"
        _set_self_attention(layer.self_attention, state, f"{prefix}.self_attention")
        if name == "decoder":
            _set_cross_attention(layer.attention, state, f"{prefix}.cross_attention")
        _set_feed_forward(layer.ffn, state, f"{prefix}.feed_forward")
    if config.embedding_norm:
        _set_norm(spec.layernorm_embedding, state, f"{name}.embedding_norm")
    if config.norm_placement is NormPlacement.PRE:
        _set_norm(spec.layer_norm, state, f"{name}.norm")


def _set_self_attention(spec: Any, state: State, name: str) -> None:
    _set_linear(spec.linear[0], state, name, "query", "key", "value")
    _set_linear(spec.linear[1], state, name, "output")
    _set_norm(spec.layer_norm, state, f"{name}_norm")


def _set_cross_attention(spec: Any, state: State, name: str) -> None:
    _set_linear(spec.linear[0], state, name, "query")
    _set_linear(spec.linear[1], state, name, "key", "value")
    _set_linear(spec.linear[2], state, name, "output")
    _set_norm(spec.layer_norm, state, f"{name}_norm")


def _set_feed_forward(spec: Any, state: State, name: str) -> None:
    _set_linear(spec.linear_0, state, name, "inner")
    _set_linear(spec.linear_1, state, name, "outer")
    _set_norm(spec.layer_norm, state, f"{name}_norm")


def _set_linear(spec: Any, state: State, name: str, *parts: str) -> None:
    """One layer, or several with the same input on top of each other."""
    spec.weight = np.concatenate([state[f"{name}.{part}.weight"] for part in parts])
    spec.bias = np.concatenate([state[f"{name}.{part}.bias"] for part in parts])


def _set_norm(spec: Any, state: State, name: str) -> None:
    spec.gamma = state[f"{name}.weight"]
    spec.beta = state[f"{name}.bias"]
