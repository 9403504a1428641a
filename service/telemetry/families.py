"""Families of metrics under the project's prefix, and the words their labels are made of.

Names and labels are a promise to dashboards.  Label values come from closed sets, never from what a caller sent.
Base units throughout; a new quantity is a new name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OTHER = "_other"  # label of everything outside its closed set


@dataclass(frozen=True, slots=True)
class Definition:
    """A family as it is documented."""

    name: str  # as Prometheus sees it
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


class Families:
    """Defines families in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.definitions: list[Definition] = []

    def counter(self, name: str, description: str, *labels: str) -> Counter:
        """A count that only grows; Prometheus sees it as `dragoman_NAME_total`."""
        self.definitions.append(Definition(f"dragoman_{name}_total", "counter", description, labels))
        return Counter(f"dragoman_{name}", description, labels, registry=self._registry)

    def gauge(self, name: str, description: str, *labels: str) -> Gauge:
        """A value that goes up and down."""
        self.definitions.append(Definition(f"dragoman_{name}", "gauge", description, labels))
        return Gauge(f"dragoman_{name}", description, labels, registry=self._registry)

    def histogram(self, name: str, description: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """A distribution over these upper bounds."""
        self.definitions.append(Definition(f"dragoman_{name}", "histogram", description, labels, tuple(buckets)))
        return Histogram(f"dragoman_{name}", description, labels, buckets=buckets, registry=self._registry)
