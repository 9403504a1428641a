"""Models of transformers, as `save_pretrained` writes them, and what their `generate` finds.

Not a test.
"""

import json
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

from model.config import ModelConfig
from tests.parity.ctranslate2_model import pieces

NAMES = {
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
}


def read_marian_model(directory: Path) -> Any:
    """Return the MarianMT model of transformers."""
    model: Any = transformers.MarianMTModel.from_pretrained(directory)
    return model.eval()


def write_random_marian(
    directory: Path,
    tokenizer: Path,
    settings: Mapping[str, Any],
    generation: Mapping[str, Any],
    *,
    seed: int,
    scale: float,
    end_bias: float,
) -> None:
    """Write a MarianMT model that is sure of itself, the last row of its embeddings for <pad>, as a converter does."""
    tokens = [*sorted(set(pieces(tokenizer)) - {"<pad>", "<unk>", "<s>", "</s>"}), "<unk>", "<pad>"]
    eos = settings["eos_token_id"]
    tokens.insert(eos, "</s>")
    pad = len(tokens) - 1
    torch.manual_seed(seed)
    config = transformers.MarianConfig(
        vocab_size=len(tokens),
        decoder_vocab_size=len(tokens),
        pad_token_id=pad,
        decoder_start_token_id=pad,
        scale_embedding=True,
        max_position_embeddings=64,
        init_std=0.25,
        **settings,
    )
    model: Any = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            is_table = "embed_tokens" in name or "shared" in name
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
            else:
                parameter.normal_(std=scale if is_table else 1.5 * parameter.shape[1] ** -0.5)
            if is_table:
                parameter[pad] = 0.0
        bias = torch.randn(len(tokens))
        bias[eos] += end_bias
        bias[pad] = 0.0
        model.final_logits_bias[:] = bias
    search = {"bad_words_ids": [[pad]], "max_length": 25, "num_beams": 4, **generation}
    model.generation_config.update(**search)
    model.save_pretrained(directory)
    separate = not settings.get("share_encoder_decoder_embeddings", True)
    vocabulary = json.dumps({token: number for number, token in enumerate(tokens)})
    (directory / "vocab.json").write_text(vocabulary)
    if separate:
        (directory / "target_vocab.json").write_text(vocabulary)
    described = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    (directory / "tokenizer_config.json").write_text(json.dumps(described))
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(tokenizer, directory / name)


def layers_by_their_names(state: Mapping[str, NDArray[np.float32]], order: list[int]) -> dict[str, NDArray[np.float32]]:
    """Return the layers of a pre-norm model under the names of transformers, the width in another order."""
    tensors = {}
    for key, value in state.items():
        if key.startswith(("encoder.", "decoder.")):
            name = f"model.{key}".replace("coder.norm.", "coder.layer_norm.")
            for ours, theirs in NAMES.items():
                name = name.replace(f".{ours}.", f".{theirs}.")
            # The width is the last axis of what reads states, and the first of what writes them.
            is_written = ".out_proj." in name or ".fc2." in name or "norm." in name
            tensors[name] = value[order] if is_written else value[:, order] if value.ndim == 2 else value
    return tensors


def sizes_of(config: ModelConfig) -> dict[str, Any]:
    """Return a model's sizes as transformers names them."""
    return {
        "d_model": config.d_model,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "max_position_embeddings": config.max_positions,
    }


def trained_pegasus(config: ModelConfig, state: Mapping[str, NDArray[np.float32]], max_length: int) -> Any:
    """Return the included model as Pegasus, which has its norms: the width in another order, sines before cosines."""
    order = [*range(0, config.d_model, 2), *range(1, config.d_model, 2)]
    model: Any = transformers.PegasusForConditionalGeneration(
        transformers.PegasusConfig(
            **sizes_of(config),
            vocab_size=config.vocab_size,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=config.pad_id,
            eos_token_id=config.eos_id,
            decoder_start_token_id=config.start_id,
            forced_eos_token_id=None,
        )
    )
    tensors = {"model.shared.weight": state["embedding.weight"][:, order], **layers_by_their_names(state, order)}
    left = model.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()}, strict=False)
    assert not left.unexpected_keys
    tied = {"final_logits_bias", "lm_head.weight"}
    assert not [name for name in left.missing_keys if name not in tied and "embed_" not in name]
    model.tie_weights()
    model.generation_config.update(max_length=max_length, forced_eos_token_id=None)
    return model.eval()


@torch.inference_mode()
def generated(
    model: Any, sources: Sequence[Sequence[int]], beam_size: int, *, early_stopping: bool, **options: Any
) -> list[list[int]]:
    """What `generate` finds for a batch, without the decoder's start and end-of-sentence."""
    pad, end = model.generation_config.pad_token_id, model.generation_config.eos_token_id
    rows = [torch.tensor(source) for source in sources]
    found: list[list[int]] = model.generate(
        pad_sequence(rows, batch_first=True, padding_value=pad),
        attention_mask=pad_sequence([torch.ones_like(row) for row in rows], batch_first=True),
        num_beams=beam_size,
        early_stopping=early_stopping and beam_size > 1,
        do_sample=False,
        **options,
    )[:, 1:].tolist()
    return [tokens[: tokens.index(end)] if end in tokens else tokens for tokens in found]


@torch.inference_mode()
def next_log_probs(model: Any, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """[T, V] of every token behind each prefix of the decoder's inputs."""
    logits = model(input_ids=torch.tensor([list(source)]), decoder_input_ids=torch.tensor([list(target)])).logits
    log_probs: Tensor = logits[0].log_softmax(dim=-1)
    for (token,) in model.generation_config.bad_words_ids or ():
        log_probs[:, token] = -math.inf
    return log_probs.log_softmax(dim=-1) if model.generation_config.renormalize_logits else log_probs
