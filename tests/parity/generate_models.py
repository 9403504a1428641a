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

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

from tests.parity.ctranslate2_model import pieces


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
