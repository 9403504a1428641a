"""A MarianMT checkpoint in the layout of Hugging Face (OPUS-MT, OPUS-MT tc-big) becomes what the export starts from.

Names and defaults as in transformers' models/marian.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.builder import Array
from export.importers.checkpoint import (
    CheckpointWeights,
    flag,
    model_config,
    model_type_of,
    read_checkpoint_settings,
    read_vocabulary,
    text_of,
    with_generation,
)
from export.importers.foreign import (
    SOURCE_PIECES,
    SOURCE_VOCABULARY,
    TARGET_PIECES,
    TARGET_VOCABULARY,
    ForeignModelError,
    ImportOptions,
    copy_pieces,
    half_sinusoids,
    imported,
    require_keys,
    whole_number,
    write_vocabulary,
)
from export.importers.language_tokens import with_languages
from export.source import ExportSource
from model.config import ModelConfig, NormPlacement
from model.manifest import TokenizerFiles, TokenizerKind
from model.vocabulary_tokenizers import PieceTokenizer

_ONLY = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "is_encoder_decoder": True,
    "forced_bos_token_id": None,
}
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def is_marian(directory: Path) -> bool:
    """Return whether the directory has a MarianMT model."""
    return model_type_of(directory) == "marian"


def read_marian(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with `config.json`, `model.safetensors` or `pytorch_model.bin`, `vocab.json`, `source.spm` and
            `target.spm`, and perhaps `generation_config.json`, `tokenizer_config.json` and `target_vocab.json`.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    settings = read_checkpoint_settings(directory)
    require_keys(settings, _ONLY, directory / "config.json")
    config, decoding = with_generation(_config(settings, directory / "config.json"), directory, options)
    tokenizer, languages = _write_tokenizer(directory, scratch, settings, config, options)
    unknown = PieceTokenizer(scratch, tokenizer).unknown_id
    weights = CheckpointWeights(directory)
    state = weights.convert(config) | {"positions": _positions(weights, config, directory)}
    weights.require_all_taken()
    return imported(
        options,
        directory,
        scratch,
        languages,
        config=replace(config, position_table=True, unk_id=unknown),
        state=state,
        tokenizer=tokenizer,
        decoding=decoding,
    )


def _config(settings: dict[str, Any], path: Path) -> ModelConfig:
    """Return the description; transformers' defaults where the file is silent."""
    number = partial(whole_number, settings, path=path)
    is_shared = flag(settings, "share_encoder_decoder_embeddings", path, default=True)
    vocab_size, pad = number("vocab_size", 58_101), number("pad_token_id", 58_100)
    return model_config(
        settings,
        path,
        activation="gelu",
        vocab_size=vocab_size,
        target_vocab_size=vocab_size if is_shared else number("decoder_vocab_size", vocab_size),
        norm_placement=NormPlacement.POST,
        start_id=number("decoder_start_token_id", 58_100),
        eos_id=number("eos_token_id", 0),
        pad_id=pad,
        unk_id=0,
        suppressed_ids=(pad,),
        shared_embeddings=is_shared,
        tied_projection=flag(settings, "tie_word_embeddings", path, default=True),
        projection_bias=True,
        scaled_embeddings=flag(settings, "scale_embedding", path, default=False),
    )


def _positions(weights: CheckpointWeights, config: ModelConfig, directory: Path) -> Array:
    """Return the table: the file's, which both stacks must have, or the usual one."""
    usual = half_sinusoids(config.max_positions, config.d_model)
    tables = [weights.take(name, usual.shape) for name in _POSITIONS if name in weights]
    if len(tables) == 2 and not np.array_equal(tables[0], tables[1]):
        raise ForeignModelError(f"{directory}: {_POSITIONS[0]} and {_POSITIONS[1]} differ: not supported")
    return tables[0] if tables else usual


def _write_tokenizer(
    directory: Path, scratch: Path, settings: dict[str, Any], config: ModelConfig, options: ImportOptions
) -> tuple[TokenizerFiles, tuple[str, str]]:
    """Write vocabularies and SentencePiece models, and return their names and the languages."""
    source = read_vocabulary(directory / "vocab.json", config.vocab_size)
    is_separate = bool(settings.get("separate_vocabs", False))
    target = read_vocabulary(directory / "target_vocab.json", config.num_target_tokens) if is_separate else source
    write_vocabulary(scratch / SOURCE_VOCABULARY, source)
    if is_separate:
        write_vocabulary(scratch / TARGET_VOCABULARY, target)
    copy_pieces(options.source_pieces or directory / "source.spm", scratch / SOURCE_PIECES, source)
    copy_pieces(options.target_pieces or directory / "target.spm", scratch / TARGET_PIECES, target)
    end = target[config.eos_id]
    has_end = options.source_eos is not False
    files = TokenizerFiles(
        kind=TokenizerKind.PIECES,
        source=SOURCE_PIECES,
        target=TARGET_PIECES,
        source_vocabulary=SOURCE_VOCABULARY,
        target_vocabulary=TARGET_VOCABULARY if is_separate else "",
        unknown=text_of(settings, "unk_token") or "<unk>",
        end=end,
        source_prefix=options.source_prefix,
        source_suffix=(end,) if has_end else (),
    )
    named = text_of(settings, "source_lang"), text_of(settings, "target_lang")
    return with_languages(files, source, named, options)
