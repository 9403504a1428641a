"""Which setting is best: one choice after the other, everything that was tried kept for the report.

Knows neither contestants nor regimes: a setting is a frozen dataclass, and a function says what it costs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

Setting = TypeVar("Setting", bound=Any)

Changes = Mapping[str, Any]  # fields of a setting -> other values


@dataclass(slots=True)
class Sweep(Generic[Setting]):
    """The settings that were tried, with what each cost in seconds; less is better."""

    costs: dict[Setting, float] = field(default_factory=dict)

    @property
    def best(self) -> Setting:
        """The cheapest."""
        return min(self.costs, key=lambda setting: self.costs[setting])

    @property
    def lowest_cost(self) -> float:
        """Of the cheapest."""
        return min(self.costs.values())

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"best": str(self.best), "tried": {str(setting): round(cost, 5) for setting, cost in self.costs.items()}}


def descend(start: Setting, choices: Sequence[Sequence[Changes]], cost: Callable[[Setting], float]) -> Sweep[Setting]:
    """Try the values of one choice after the other, each from the best setting so far.

    Args:
        start: the first setting that is tried.
        choices: for each choice its values; one that depends on a later one can be given twice.
        cost: of a setting; is asked once for each.
    """
    sweep = Sweep[Setting]({start: cost(start)})
    for values in choices:
        base = sweep.best
        for value in values:
            setting: Setting = replace(base, **value)
            if setting not in sweep.costs:
                sweep.costs[setting] = cost(setting)
    return sweep
