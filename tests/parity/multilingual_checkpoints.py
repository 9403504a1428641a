"""Small checkpoints of many languages with random weights, as transformers' own `save_pretrained` writes them.

Not a test.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

from tests.fakes.own_text import own_sentences


class Family(StrEnum):
    NLLB = "nllb"
    M2M100 = "m2m100"
    MBART50 = "mbart-50"
    MBART = "mbart"


NUM_LANGUAGES = {Family.NLLB: 202, Family.M2M100: 100, Family.MBART50: 52, Family.MBART: 25}
TOKENIZERS = {
    Family.NLLB: "NllbTokenizer",
    Family.M2M100: "M2M100Tokenizer",
    Family.MBART50: "MBart50Tokenizer",
    Family.MBART: "MBartTokenizer",
}
_SPARE_ROWS = {Family.NLLB: 3, Family.M2M100: 8, Family.MBART50: 1, Family.MBART: 1}  # <mask>, made-up words


@dataclass(frozen=True)
class Shape:
    d_model: int
    d_ff: int
    num_heads: int
    num_encoder_layers: int
    num_decoder_layers: int


SHAPES = (Shape(32, 64, 4, 2, 2), Shape(48, 80, 3, 1, 3), Shape(64, 96, 8, 3, 1))


def train_pieces(path: Path, lines: Sequence[str] | None = None, *, vocab_size: int = 400) -> Path:
    """Learn a SentencePiece model with the special tokens that fairseq's have."""
    with path.open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines or own_sentences(1_000)),
            model_writer=out,
            vocab_size=vocab_size,
            model_type="bpe",
            character_coverage=1.0,
            minloglevel=2,
        )
    return path


def write_tokenizer(directory: Path, pieces: Path, family: Family) -> int:
    """Write the tokenizer's files and return the rows that the model needs."""
    directory.mkdir(parents=True)
    shutil.copyfile(pieces, directory / "sentencepiece.bpe.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    names = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *names]
    if family is Family.M2M100:
        (directory / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    settings = {"tokenizer_class": TOKENIZERS[family]}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(tokens) + NUM_LANGUAGES[family] + _SPARE_ROWS[family]


def write_checkpoint(
    directory: Path, pieces: Path, family: Family, shape: Shape, *, seed: int = 0, ends: bool = True, **saving: Any
) -> Any:
    """Write a checkpoint and return its model, whose translations end or do not; `saving` goes to `save_pretrained`."""
    num_rows = write_tokenizer(directory, pieces, family)
    sizes: dict[str, Any] = {
        "vocab_size": num_rows,
        "d_model": shape.d_model,
        "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff,
        "encoder_attention_heads": shape.num_heads,
        "decoder_attention_heads": shape.num_heads,
        "encoder_layers": shape.num_encoder_layers,
        "decoder_layers": shape.num_decoder_layers,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "init_std": 0.2,
    }
    torch.manual_seed(seed)
    model: Any
    if family in (Family.NLLB, Family.M2M100):
        model = M2M100ForConditionalGeneration(M2M100Config(**sizes))
    else:
        german = num_rows - NUM_LANGUAGES[family] - _SPARE_ROWS[family] + 2
        start = 2 if family is Family.MBART50 else german
        config = MBartConfig(**sizes, decoder_start_token_id=start, forced_eos_token_id=None, scale_embedding=True)
        model = MBartForConditionalGeneration(config)
        model.final_logits_bias.normal_(std=0.3)
    _make_decided(model.eval())
    if ends:
        _make_ending(model)
    model.save_pretrained(directory, **saving)
    return model


@torch.no_grad()
def _make_decided(model: Any) -> None:
    """Let translations depend on their sources."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn(parameter.shape) * 0.2)
        elif "embed" not in name and "shared" not in name:
            is_output = "out_proj" in name or "fc2" in name  # outweighs the last token, which would be repeated
            parameter.normal_(std=(4.5 if is_output else 1.5) * parameter.shape[1] ** -0.5)
    model.model.decoder.layer_norm.weight.mul_(1.5)


@torch.no_grad()
def _make_ending(model: Any) -> None:
    """Let some translations end at each step."""
    norm, end = model.model.decoder.layer_norm, model.model.shared.weight[2]
    sources = torch.randint(4, 300, (32, 12))
    found = model.generate(sources, max_length=25, suppress_tokens=[2], do_sample=False, num_beams=1)
    logits = model(input_ids=sources, decoder_input_ids=found).logits[:, 1:]
    missing = (logits.amax(dim=-1) - logits[..., 2]).quantile(0.1)
    norm.bias.add_(missing * end / end.square().sum())
