"""Describes a model to callers, and turns the options of a request into search parameters.

The range of each option stands at its field of `TranslateOptions`.
"""

from collections.abc import Sequence
from typing import Any

from model.bundle import Bundle
from model.manifest import GPU_PRECISION, PREFERRED_PRECISIONS
from service.config import LimitsConfig
from service.engine.wire import Device, SearchParams
from service.errors import InvalidInput
from service.models.codec import TextCodec
from service.records import OPTIONS, ModelInfo, TranslateOptions

DEFAULT_MAX_BEAM_SIZE = LimitsConfig().max_beam_size  # where no setting changes it
_MAX_PHRASES = 64
_MAX_PHRASE_CHARACTERS = 200
_PARAMS = tuple(name for name in OPTIONS if name in SearchParams._fields)
_RANGES = {name: (within.least, within.most) for name in _PARAMS if (within := OPTIONS[name].range) is not None}


def describe(
    bundle: Bundle,
    precision: str | None = None,
    device: Device = "cpu",
    *,
    max_beam_size: int = DEFAULT_MAX_BEAM_SIZE,
) -> ModelInfo:
    """Describe the model of a bundle, with complete default options.

    Args:
        precision: of the graphs; None for the best that the bundle has.
        device: where the graphs run.
        max_beam_size: the largest beam that is accepted, which also limits the default.
    """
    manifest, decoding = bundle.manifest, bundle.manifest.decoding
    preferred = PREFERRED_PRECISIONS if device == "cpu" else (GPU_PRECISION,)
    precision = precision or next((name for name in preferred if name in manifest.variants), "")
    variant = manifest.variants.get(precision)
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        precision=precision,
        device=device,
        default_options=TranslateOptions(
            beam_size=min(decoding.beam_size, max_beam_size),
            num_hypotheses=1,
            length_penalty=decoding.length_penalty,
            patience=decoding.patience,
            max_target_tokens=decoding.max_target_tokens,
            use_shortlist=False,
            allow_smaller_beam=False,
            stop_repetition=decoding.stop_repetition,
        ),
        max_source_tokens=decoding.max_source_tokens,
        max_beam_size=max_beam_size,
        has_shortlist=bool(manifest.shortlist) and device == "cpu",
        reliable_source_tokens=decoding.reliable_source_tokens,
        has_scorer=variant is not None and bool(variant.scorer),
        has_head_weights=variant is not None and variant.attention_weights,
        has_repetition_penalty=variant is not None and variant.repetition_penalty,
        languages=manifest.tokenizer.languages,
    )


def search_params(info: ModelInfo, options: TranslateOptions, codec: TextCodec | None = None) -> SearchParams:
    """Return the options, with the model's defaults where they are absent.

    Args:
        info: its default options have what every search needs, and their max_target_tokens is the model's limit.
        options: of the request.
        codec: of the model; may be left out where no phrases are to be suppressed.

    Raises:
        InvalidInput: names the option, its value, and the range or what does not fit.
    """
    given, defaults = _given(options), _given(info.default_options)
    params = SearchParams(**{**defaults, **given})
    limits = {
        **_RANGES,
        "beam_size": (1, info.max_beam_size),
        "num_hypotheses": (1, params.beam_size),
        "max_target_tokens": (1, defaults["max_target_tokens"]),
        "min_target_tokens": (0, params.max_target_tokens - 1),
    }
    for name, (least, most) in limits.items():
        _check_range(name, getattr(params, name), least, most)
    if params.use_shortlist and not info.has_shortlist:
        raise _refused("use_shortlist", params, "the model has no shortlist")
    if params.repetition_penalty != 1.0 and not info.has_repetition_penalty:
        reason = "the model was exported before its graphs took one: export it again"
        raise _refused("repetition_penalty", params, reason)
    if params.sampling_top_k:
        _check_sampling(params)
    elif drawn := [name for name in given if name.startswith("sampling_") and name != "sampling_top_k"]:
        raise _refused(
            drawn[0], params, f"nothing is drawn without sampling_top_k, up to {_RANGES['sampling_top_k'][1]:,}"
        )
    phrases = _checked(options.suppressed_phrases)
    return params._replace(suppressed=codec.spellings(phrases)) if phrases and codec is not None else params


def _given(options: TranslateOptions) -> dict[str, Any]:
    return {name: value for name in _PARAMS if (value := getattr(options, name)) is not None}


def _check_range(option: str, value: float, low: float, high: float) -> None:
    """Raise InvalidInput if the value of an option is outside its range, both ends included."""
    if not low <= value <= high:  # also refuses NaN
        given = value if isinstance(value, int) else f"{value:g}"
        raise InvalidInput(f"options.{option} is {given}, from {low} to {high} is accepted", field=f"options.{option}")


def _check_sampling(params: SearchParams) -> None:
    if params.beam_size != 1:
        raise _refused("sampling_top_k", params, f"beam_size is {params.beam_size}: tokens are drawn with beam_size 1")
    if params.return_alternatives:
        raise _refused("sampling_top_k", params, "return_alternatives is true: alternatives are searched, not drawn")
    if params.sampling_top_p == 0.0:
        raise _refused("sampling_top_p", params, "more than 0 is accepted")


def _checked(phrases: Sequence[str]) -> Sequence[str]:
    field = "options.suppressed_phrases"
    if len(phrases) > _MAX_PHRASES:
        message = f"{field} has {len(phrases)} phrases, at most {_MAX_PHRASES} are accepted"
        raise InvalidInput(message, field=field)
    for index, phrase in enumerate(phrases):
        if not 0 < len(phrase.strip()) <= len(phrase) <= _MAX_PHRASE_CHARACTERS:
            length = "is blank" if not phrase.strip() else f"has {len(phrase)} characters"
            message = f"{field}[{index}] {length}, from 1 to {_MAX_PHRASE_CHARACTERS} characters are accepted"
            raise InvalidInput(message, field=f"{field}[{index}]")
    return phrases


def _refused(option: str, params: SearchParams, reason: str) -> InvalidInput:
    value = getattr(params, option)
    given = str(value).lower() if isinstance(value, int) else f"{value:g}"
    return InvalidInput(f"options.{option} is {given}, and {reason}", field=f"options.{option}")
