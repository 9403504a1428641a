"""Smaller beams while much work waits, for callers who allow it.  Pure."""

from dataclasses import replace

from service.engine.job import SearchParams


def smaller_beam(params: SearchParams, *, waiting_s: float, threshold_s: float | None) -> SearchParams:
    """The parameters with the beam halved from `threshold_s` of waiting work on, and once more from twice as much on.

    5 becomes 2, then 1; never less than the hypotheses that were asked for.  None as threshold: never.
    """
    if threshold_s is None or waiting_s < threshold_s:
        return params
    num_halvings = 2 if waiting_s >= 2 * threshold_s else 1
    return replace(params, beam_size=max(params.beam_size >> num_halvings, params.num_hypotheses, 1))
