"""What a bundle's model offers, which of several models a request means, and how that one is to search.

Knows bundles and records, but no running engine and no server, so that both a server and `service.local` say the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from model.bundle import Bundle
from model.manifest import GPU_PRECISION, LENGTH_PENALTY_RANGE, PATIENCE_RANGE, PREFERRED_PRECISIONS
from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.engine.spec import Device
from service.errors import InvalidInput, NotFound
from service.records import ModelInfo, TranslateOptions

DEFAULT_MAX_BEAM_SIZE = LimitsConfig().max_beam_size  # where no setting changes it
_MAX_ECHO = 40  # characters of a caller's value in a message
_Option = TypeVar("_Option")


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
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        precision=precision or next((name for name in preferred if name in manifest.variants), ""),
        device=device,
        default_options=TranslateOptions(
            beam_size=min(decoding.beam_size, max_beam_size),
            num_hypotheses=1,
            length_penalty=decoding.length_penalty,
            patience=decoding.patience,
            max_target_tokens=decoding.max_target_tokens,
            use_shortlist=False,
            allow_smaller_beam=False,
        ),
        max_source_tokens=decoding.max_source_tokens,
        max_beam_size=max_beam_size,
        has_shortlist=bool(manifest.shortlist) and device == "cpu",
    )


def index_of(infos: Sequence[ModelInfo], *, model: str | None, source_language: str, target_language: str) -> int:
    """Return the index of the first model that fits; an empty language, and no model, fit all.

    Raises:
        NotFound: no model fits; the message lists what there is.
    """
    named = [index for index, info in enumerate(infos) if model is None or info.name == model]
    if not named:
        names = ", ".join(info.name for info in infos)
        asked = "" if model is None else f" {_echo(model)}"
        raise NotFound(f"there is no model{asked}; loaded: {names or 'none'}")
    for index in named:
        info = infos[index]
        pairs = ((source_language, info.source_language), (target_language, info.target_language))
        if all(asked == "" or asked.lower() == offered.lower() for asked, offered in pairs):
            return index
    offers = ", ".join(f"{infos[index].source_language}-{infos[index].target_language}" for index in named)
    languages = " to ".join(_echo(code) if code else "any language" for code in (source_language, target_language))
    raise NotFound(f"there is no model for {languages}; language pairs: {offers}")


def search_params(info: ModelInfo, options: TranslateOptions) -> SearchParams:
    """Return the options, with the model's defaults where they are absent.

    Args:
        info: its default options are complete, and their max_target_tokens is the model's limit.

    Raises:
        InvalidInput: names the option, its value and the range.
    """
    defaults = info.default_options
    params = SearchParams(
        beam_size=_given(options.beam_size, defaults.beam_size),
        num_hypotheses=_given(options.num_hypotheses, defaults.num_hypotheses),
        length_penalty=_given(options.length_penalty, defaults.length_penalty),
        patience=_given(options.patience, defaults.patience),
        max_target_tokens=_given(options.max_target_tokens, defaults.max_target_tokens),
        use_shortlist=_given(options.use_shortlist, defaults.use_shortlist),
    )
    _check_range("beam_size", params.beam_size, 1, info.max_beam_size)
    _check_range("num_hypotheses", params.num_hypotheses, 1, params.beam_size)
    _check_range("length_penalty", params.length_penalty, *LENGTH_PENALTY_RANGE)
    _check_range("patience", params.patience, *PATIENCE_RANGE)
    _check_range("max_target_tokens", params.max_target_tokens, 1, _given(None, defaults.max_target_tokens))
    if params.use_shortlist and not info.has_shortlist:
        message = "options.use_shortlist is true, and the model has no shortlist"
        raise InvalidInput(message, field="options.use_shortlist")
    return params


def smaller_beam(params: SearchParams, *, waiting_s: float, threshold_s: float | None) -> SearchParams:
    """Halve the beam from `threshold_s` of waiting work on, and once more from twice as much on.

    5 becomes 2, then 1; never less than the hypotheses that were asked for.  Without a threshold the beam stays.
    """
    if threshold_s is None or waiting_s < threshold_s:
        return params
    num_halvings = 2 if waiting_s >= 2 * threshold_s else 1
    return replace(params, beam_size=max(params.beam_size >> num_halvings, params.num_hypotheses, 1))


def _echo(value: str) -> str:
    """Return a caller's value, short and harmless in a message."""
    return ascii(value if len(value) <= _MAX_ECHO else value[:_MAX_ECHO] + "...")


def _given(value: _Option | None, default: _Option | None) -> _Option:
    """Return the value of an option, the model's default if it is absent."""
    if value is None:
        assert default is not None, "the default options of a model are complete"
        return default
    return value


def _check_range(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        given = value if isinstance(value, int) else f"{value:g}"
        raise InvalidInput(f"options.{option} is {given}, from {low} to {high} is accepted", field=f"options.{option}")
