"""How transformers' `generate` searches with a model, as our decoding defaults.

The settings stand in `generation_config.json`, or in `config.json` where a model has no such file.  Names and defaults
as in generation/configuration_utils.py of transformers 5.23.  Knows no weights.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from export.importers.checkpoint import flag
from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    blaming,
    read_settings,
    require_keys,
    whole_number,
)
from model.config import ModelConfig, StopRule
from model.manifest import DecodingDefaults

# What changes the search and has no place in a bundle, with the values that change nothing.
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "min_length": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
}
_ABSENT = (
    "min_new_tokens",
    "begin_suppress_tokens",
    "forced_decoder_ids",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "guidance_scale",
)


def with_generation(
    config: ModelConfig, directory: Path, options: ImportOptions
) -> tuple[ModelConfig, DecodingDefaults]:
    """Return the model with the tokens that `generate` never writes, and its defaults.

    With `options.profile`, nothing but beam size, length penalty and lengths is taken from the settings.

    Raises:
        ForeignModelError: a setting is damaged or not supported.
    """
    path = directory / "generation_config.json"
    if not path.is_file():
        path = directory / "config.json"
    settings = {name: value for name, value in read_settings(path).items() if value is not None}
    is_own = options.profile in (None, StopRule.HF)
    if is_own:
        _require_supported(settings, path)
    banned = {*config.suppressed_ids, *_banned(settings, path)} - {config.eos_id}
    keeps_mass = bool(banned) and is_own and not flag(settings, "renormalize_logits", path, default=False)
    with blaming(path):
        config = replace(config, suppressed_ids=tuple(sorted(banned)), suppressed_keep_mass=keeps_mass)
        return config, _decoding(settings, config, options.profile, path)


def _require_supported(settings: dict[str, Any], path: Path) -> None:
    try:
        require_keys(settings, _NEUTRAL, path)
        require_keys(settings, dict.fromkeys(_ABSENT), path)
        if settings.get("early_stopping", False) not in (True, False):
            require_keys(settings, {"early_stopping": False}, path)
    except ForeignModelError as error:
        raise ForeignModelError(f"{error}; --profile ctranslate2 searches without it") from error


def _decoding(settings: dict[str, Any], config: ModelConfig, profile: StopRule | None, path: Path) -> DecodingDefaults:
    """Return the defaults; transformers counts the decoder's start as one of `max_length`."""
    usual = DecodingDefaults()
    longest = whole_number(settings, "max_length", usual.max_target_tokens + 1, path)
    if settings.get("max_new_tokens") is not None:  # goes before `max_length`
        longest = whole_number(settings, "max_new_tokens", longest - 1, path) + 1
    own_rule = StopRule.CTRANSLATE2 if flag(settings, "early_stopping", path, default=False) else StopRule.HF
    return DecodingDefaults(
        beam_size=whole_number(settings, "num_beams", 1, path),
        length_penalty=settings.get("length_penalty", 1.0),
        max_target_tokens=min(longest - 1, config.max_positions),
        stop_rule=profile or own_rule,
        forced_end=profile in (None, StopRule.HF) and _forces_end(settings, config, path),
    )


def _forces_end(settings: dict[str, Any], config: ModelConfig, path: Path) -> bool:
    forced = settings.get("forced_eos_token_id")
    if forced in (None, config.eos_id, [config.eos_id]):
        return forced is not None
    raise ForeignModelError(f"{path}: forced_eos_token_id is {forced!r:.60}, only eos_token_id is supported")


def _banned(settings: dict[str, Any], path: Path) -> list[int]:
    """Return the tokens that are never written."""
    words, tokens = settings.get("bad_words_ids", []), settings.get("suppress_tokens", [])
    if not isinstance(words, list) or not all(isinstance(word, list) and len(word) == 1 for word in words):
        raise ForeignModelError(f"{path}: bad_words_ids has words of several tokens, which is not supported")
    if not isinstance(tokens, list):
        raise ForeignModelError(f"{path}: suppress_tokens is {tokens!r:.60}, it must be a list of tokens")
    return [
        whole_number({name: token}, name, 0, path)
        for name, found in (("bad_words_ids", [word[0] for word in words]), ("suppress_tokens", tokens))
        for token in found
    ]
