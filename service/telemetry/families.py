"""Families of metrics under the project's prefix, and the words their labels are made of.

Names and labels are a promise to dashboards.  Label values come from closed sets, never from what a caller sent.
Base units throughout; a new quantity is a new name.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OTHER = "_other"  # label of everything outside its closed set


class Families:
    """Defines families in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, description: str, *labels: str) -> Counter:
        """A count that only grows; Prometheus sees it as `dragoman_NAME_total`."""
        return Counter(f"dragoman_{name}", description, labels, registry=self._registry)

    def gauge(self, name: str, description: str, *labels: str) -> Gauge:
        """A value that goes up and down."""
        return Gauge(f"dragoman_{name}", description, labels, registry=self._registry)

    def histogram(self, name: str, description: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """A distribution over these upper bounds."""
        return Histogram(f"dragoman_{name}", description, labels, buckets=buckets, registry=self._registry)
