"""Counters, gauges and histograms as plain numbers, and the families that they are shown in.

A series has no lock: one thread at a time counts.  A family shows what its own process counts and what other processes
have said that they count, added up.  Knows Prometheus' kinds of metrics, not what is counted.

A page has a thousand samples, few of which have changed since the last one.  Only these are written anew, because calls
wait meanwhile.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]  # the values, in the order of the family's label names
Numbers = tuple[float, ...]  # of one series: its value; of a histogram the number in each bucket, then their sum
Sums = Mapping[Labels, Numbers]  # of a family, over all processes


class Counter:
    """A number that only goes up."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def numbers(self) -> Numbers:
        return (self.value,)


class Gauge:
    """A number that is set, counted up and down, or read when somebody looks."""

    __slots__ = ("_read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def set_function(self, read: Callable[[], float]) -> None:
        self._read = read

    def numbers(self) -> Numbers:
        return (self.value if self._read is None else float(self._read()),)


class Histogram:
    """How many observations fell into each bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Count nothing yet; `bounds` are the highest values of all buckets but the last, which has none."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Collection[float]) -> None:
        """Count many at once, as those of an engine's report: there are several for each token of a translation."""
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def numbers(self) -> Numbers:
        return (*self._counts, self._sum)


_Series = TypeVar("_Series", Counter, Gauge, Histogram)


class Family(Generic[_Series]):
    """The series of one name, by the values of their labels; one without labels is there from the start.

    `heard` and `lost` are for what other processes count in the same family.  A process that takes the place of another
    one has its name, the source: each name keeps its place in the sums, because 0.2 + 0.3 + 0.1 is less than
    0.1 + 0.2 + 0.3, and Prometheus takes any smaller number for a restart.
    """

    kind: ClassVar[Literal["counter", "gauge", "histogram"]]
    usual_query: ClassVar[str]  # of `name`, `by` its labels

    def __init__(
        self,
        name: str,
        description: str,
        labels: Mapping[str, Sequence[str]],
        query: str = "",
        *,
        buckets: Sequence[float] = (),
        is_amount: bool = True,
    ) -> None:
        """Define a family without series.

        Args:
            name: what Prometheus sees.
            labels: with the values that have a series before they occur.
            query: an example in PromQL, where that is not the usual sum, rate or percentile.
            buckets: the highest values of all buckets of a histogram but the last, which has none.
            is_amount: amounts add up over processes; the others are facts that the process with the page knows.
        """
        self.name, self.description, self.label_values = name, description, labels
        by = f" by ({', '.join(labels)})" if labels else ""
        self.query = query or self.usual_query.format(name=name, by=by, le=", ".join(["le", *labels]))
        self.has_own_query = bool(query)
        self.buckets, self.is_amount = tuple(buckets), is_amount
        documentation = description.replace("\\", r"\\").replace("\n", r"\n")
        self._head = f"# HELP {name} {documentation}\n# TYPE {name} {self.kind}\n"
        self._label_names = tuple(labels)
        self._series: dict[Labels, _Series] = {}
        self._heard: dict[str, Sums] = {}  # the latest, by source
        self._base: dict[str, dict[Labels, Numbers]] = {}  # of processes that are lost, by source
        self._written: dict[Labels, _Written] = {}  # the last page
        if not labels:
            self.labels()

    def labels(self, *values: str) -> _Series:
        """Return the series of these values, the same one each time."""
        series = self._series.get(values)
        if series is None:
            assert len(values) == len(self._label_names), f"{self.name} has the labels {self._label_names}"
            series = self._series[values] = self._new()
        return series

    def remove(self, *values: str) -> None:
        """Show this series no more; counted in later, it begins at 0."""
        self._series.pop(values, None)

    def numbers(self) -> dict[Labels, Numbers]:
        """Return what every series of this process holds now."""
        return {values: series.numbers() for values, series in self._series.items()}

    def heard(self, source: str, numbers: Sums) -> None:
        """Show these `numbers` of another process instead of its earlier ones."""
        self._heard[source] = numbers
        self._base.setdefault(source, {})

    def lost(self, source: str) -> Sums:
        """Keep what a process has counted for ever, and return it; the next one of that name begins at 0."""
        last = self._heard.pop(source, {})
        _add(self._base.setdefault(source, {}), last)
        return last

    def sums(self) -> dict[Labels, Numbers]:
        """Return what every series holds now, summed over all processes."""
        sums = self.numbers()
        for source, base in self._base.items():
            of_source = base.copy()
            _add(of_source, self._heard.get(source, {}))
            _add(sums, of_source)
        return sums

    def text(self, sums: Sums) -> str:
        """Return these `sums` in Prometheus' text format."""
        written, self._written = self._written, {}
        for values, numbers in sums.items():
            last = written.get(values)
            if last is None or last.numbers != numbers:
                names = self._sample_names(values) if last is None else last.names
                shown = map(floatToGoString, self._shown(numbers))
                last = _Written(names, numbers, "".join(map("{} {}\n".format, names, shown)))
            self._written[values] = last
        return self._head + "".join([last.text for last in self._written.values()])

    def _new(self) -> _Series:
        raise NotImplementedError

    def _sample_names(self, values: Labels) -> list[str]:
        """Return the names of a series' samples, with their labels."""
        return [_sample_name(self.name, zip(self._label_names, values, strict=True))]

    def _shown(self, numbers: Numbers) -> Iterable[float]:
        """Return the values of these samples."""
        return numbers


class CounterFamily(Family[Counter]):
    kind = "counter"
    usual_query = "sum(rate({name}[5m])){by}"

    def _new(self) -> Counter:
        return Counter()


class GaugeFamily(Family[Gauge]):
    kind = "gauge"
    usual_query = "sum({name}){by}"

    def _new(self) -> Gauge:
        return Gauge()

    def lost(self, source: str) -> Sums:
        """Show nothing more of this process, and return what it was."""
        return self._heard.pop(source, {})


class HistogramFamily(Family[Histogram]):
    kind = "histogram"
    usual_query = "histogram_quantile(0.99, sum(rate({name}_bucket[5m])) by ({le}))"

    def _new(self) -> Histogram:
        return Histogram(self.buckets)

    def _sample_names(self, values: Labels) -> list[str]:
        labels = dict(zip(self._label_names, values, strict=True))
        bounds = [*(str(float(bound)) for bound in self.buckets), "+Inf"]
        buckets = [_sample_name(f"{self.name}_bucket", {**labels, "le": bound}.items()) for bound in bounds]
        return [*buckets, *(_sample_name(f"{self.name}_{part}", labels.items()) for part in ("count", "sum"))]

    def _shown(self, numbers: Numbers) -> Iterable[float]:
        *counts, total = numbers
        buckets = list(accumulate(counts))
        return (*buckets, buckets[-1], total)


class _Written(NamedTuple):
    """A series as the last page shows it."""

    names: Sequence[str]
    numbers: Numbers
    text: str


def _add(sums: dict[Labels, Numbers], numbers: Sums) -> None:
    for values, added in numbers.items():
        sums[values] = tuple(map(add, sums[values], added)) if values in sums else added


def _sample_name(name: str, labels: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sorted(labels))
    return f"{name}{{{text}}}" if text else name


_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
