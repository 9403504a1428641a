"""Checkpoints of many languages: M2M100, NLLB, mBART and mBART-50, in the layout of Hugging Face.

Names and defaults as in transformers' models/m2m_100 and models/mbart.  One bundle has all languages of the model.
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
    ForeignModelError,
    ImportOptions,
    State,
    copy_pieces,
    imported,
    read_pieces,
    require_keys,
    whole_number,
    write_vocabulary,
)
from export.importers.language_tokens import choose_pair, languages_of, refuse_source_prefix
from export.source import ExportSource
from model.config import ModelConfig
from model.languages import Language
from model.manifest import SOURCE_LANGUAGE, TARGET_LANGUAGE, TokenizerFiles, TokenizerKind

PIECES_NAME = "sentencepiece.bpe.model"
_ONLY = {"is_encoder_decoder": True, "normalize_before": True, "add_final_layer_norm": True}
_KINDS = ("m2m_100", "mbart")
_TOKENIZERS = ("M2M100Tokenizer", "NllbTokenizer", "MBart50Tokenizer", "MBartTokenizer")
_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]  # of fairseq's vocabularies
_UNKNOWN_ID = _FIRST.index("<unk>")
_OFFSET = 2  # of position tables: the row of the first token


def is_m2m100(directory: Path) -> bool:
    """Return whether the directory has a model of M2M100's or mBART's kind."""
    return model_type_of(directory) in _KINDS


def read_m2m100(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with `config.json`, the weights, `sentencepiece.bpe.model`, for M2M100 `vocab.json`, and perhaps
            `generation_config.json`, `tokenizer_config.json` and `tokenizer.json`.
        options: what the owner says; the languages are those of a request that names none.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    settings, path = read_checkpoint_settings(directory), directory / "config.json"
    require_keys(settings, _ONLY, path)
    kind = text_of(settings, "tokenizer_class").removesuffix("Fast")
    if kind and kind not in _TOKENIZERS:
        raise ForeignModelError(f"{directory} has a {kind[:60]!r}, supported are {', '.join(_TOKENIZERS)}")
    config, decoding = with_generation(_config(settings, path), directory, options)
    tokens, found = _vocabulary(directory, settings, config, options)
    refuse_source_prefix(options, [one.token for one in found.values()])
    tokenizer = _tokenizer(settings, config, tokens[config.eos_id], found, options)
    languages = choose_pair(tokenizer.languages, settings, options)
    pieces = options.source_pieces or directory / PIECES_NAME
    copy_pieces(pieces, scratch / SOURCE_PIECES, tokens)
    write_vocabulary(scratch / SOURCE_VOCABULARY, tokens)
    weights = CheckpointWeights(directory)
    state = weights.convert(config) | _positions(weights, config)
    if config.embedding_norm:
        for stack in ("encoder", "decoder"):
            state |= weights.pair(f"{stack}.embedding_norm", f"model.{stack}.layernorm_embedding", (config.d_model,))
    for stack in ("encoder", "decoder"):
        state |= weights.pair(f"{stack}.norm", f"model.{stack}.layer_norm", (config.d_model,))
    weights.require_all_taken()
    return imported(
        options, directory, scratch, languages, config=config, state=state, tokenizer=tokenizer, decoding=decoding
    )


def _config(settings: dict[str, Any], path: Path) -> ModelConfig:
    """Return the description; transformers' defaults where the file is silent."""
    is_mbart = settings.get("model_type") == "mbart"
    number = partial(whole_number, settings, path=path)
    if is_mbart and settings.get("decoder_start_token_id") is None:
        raise ForeignModelError(f"{path} has no decoder_start_token_id: its callers give one with each text")
    return model_config(
        settings,
        path,
        activation="gelu" if is_mbart else "relu",
        vocab_size=number("vocab_size", 50_265 if is_mbart else 128_112),
        start_id=number("decoder_start_token_id", 2),
        eos_id=number("eos_token_id", 2),
        pad_id=number("pad_token_id", 1),
        unk_id=_UNKNOWN_ID,
        tied_projection=flag(settings, "tie_word_embeddings", path, default=True),
        projection_bias=is_mbart,
        scaled_embeddings=flag(settings, "scale_embedding", path, default=not is_mbart),
        position_table=True,
        separate_positions=is_mbart,
        embedding_norm=is_mbart,
    )


def _positions(weights: CheckpointWeights, config: ModelConfig) -> State:
    """Return mBART's learned tables; of M2M100, the sinusoids that transformers computes."""
    if not config.separate_positions:
        return {"positions": _sinusoids(config.max_positions, config.d_model)}
    shape = config.max_positions + _OFFSET, config.d_model
    names = {"positions": "encoder", "target_positions": "decoder"}
    return {key: weights.take(f"model.{stack}.embed_positions.weight", shape)[_OFFSET:] for key, stack in names.items()}


def _sinusoids(num_positions: int, d_model: int) -> Array:
    """Return the table of tensor2tensor [num_positions, d_model]: sines, then cosines, from the second position on."""
    half = d_model // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-np.log(10_000.0) / (half - 1)))
    angles = np.arange(_OFFSET, _OFFSET + num_positions, dtype=np.float32)[:, None] * rates
    table: Array = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return table


def _vocabulary(
    directory: Path, settings: dict[str, Any], config: ModelConfig, options: ImportOptions
) -> tuple[list[str], dict[int, Language]]:
    """Return the tokens by id, and which of them are languages.

    The ids are those of `vocab.json`, or else those of SentencePiece plus 1, with the languages behind.
    """
    path = directory / "vocab.json"
    if path.is_file():
        tokens = read_vocabulary(path, config.vocab_size)
    else:
        processor = read_pieces(options.source_pieces or directory / PIECES_NAME)
        pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
        tokens = [*_FIRST, *pieces[3:]]
        tokens += [""] * (config.vocab_size - len(tokens))
    if tokens[: len(_FIRST)] != _FIRST or len(tokens) > config.vocab_size:
        raise ForeignModelError(
            f"{directory}: {len(tokens)} tokens begin with {tokens[:4]}, needed are at most {config.vocab_size} that "
            f"begin with {_FIRST}"
        )
    languages = languages_of(directory, settings, tokens, has_vocabulary=path.is_file())
    for number, one in languages.items():
        tokens[number] = one.token
    return tokens, languages


def _tokenizer(
    settings: dict[str, Any],
    config: ModelConfig,
    end: str,
    languages: dict[int, Language],
    options: ImportOptions,
) -> TokenizerFiles:
    """Return what the tokenizer is; a language that every translation starts with is the only target."""
    starts_with_language = config.start_id in languages
    first = config.start_id if starts_with_language else settings.get("forced_bos_token_id")
    if first is not None and first not in languages:
        raise ForeignModelError(f"forced_bos_token_id is {first!r:.60}, which is no language's token")
    if first in languages:
        languages = {number: replace(one, is_target=number == first) for number, one in languages.items()}
    is_last = options.language_last
    if is_last is None:
        is_last = starts_with_language or bool(settings.get("legacy_behaviour", False))
    return TokenizerFiles(
        kind=TokenizerKind.PIECES,
        source=SOURCE_PIECES,
        source_vocabulary=SOURCE_VOCABULARY,
        end=end,
        source_prefix=() if is_last else (SOURCE_LANGUAGE,),
        source_suffix=(end, SOURCE_LANGUAGE) if is_last else (end,),
        target_prefix=() if starts_with_language else (TARGET_LANGUAGE,),
        languages=tuple(languages.values()),
    )
