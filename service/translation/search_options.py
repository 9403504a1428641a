"""How to search for a request: its options, the model's defaults where they are absent, and the ranges of both; and
smaller beams while much work waits, for callers who allow that.
"""

from dataclasses import replace
from typing import TypeVar

from model.manifest import LENGTH_PENALTY_RANGE, PATIENCE_RANGE
from service.engine.job import SearchParams
from service.errors import InvalidInput
from service.records import ModelInfo, TranslateOptions

_Option = TypeVar("_Option")


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
