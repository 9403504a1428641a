"""Series of plain numbers, read back from the page by Prometheus' own parser."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.series import CounterFamily, GaugeFamily, HistogramFamily


def samples(family: CounterFamily | GaugeFamily | HistogramFamily) -> dict[tuple[str, ...], float]:
    """Values of the page by the sample's name and its labels' values."""
    (parsed,) = text_string_to_metric_families(family.text(family.sums()))
    return {(sample.name, *sample.labels.values()): sample.value for sample in parsed.samples}


def test_gauge_is_counted_up_and_down_set_read_and_removed():
    family = GaugeFamily("rows", "Rows.", {"model": ()})
    value = 3
    counted, read = family.labels("counted"), family.labels("read")
    counted.value += 2
    counted.value -= 1
    family.labels("set").set(0.25)
    read.set_function(lambda: value)
    first = samples(family)
    value = 4
    family.remove("set")
    family.remove("never seen")

    assert first == {("rows", "counted"): 1.0, ("rows", "read"): 3.0, ("rows", "set"): 0.25}
    assert samples(family) == {("rows", "counted"): 1.0, ("rows", "read"): 4.0}


def test_page_is_what_the_library_writes_also_when_some_series_have_changed():
    registry = CollectorRegistry()
    names, values = ("model", "code"), (("m", "OK"), ('a "b"\n\\c', "OK"))
    texts = CounterFamily("texts_total", "Texts\n\\.", dict.fromkeys(names, ()))
    theirs = Counter("texts", "Texts\n\\.", names, registry=registry)
    rows, their_rows = GaugeFamily("rows", "Rows.", {}), Gauge("rows", "Rows.", registry=registry)
    wait = HistogramFamily("wait_seconds", "Wait.", dict.fromkeys(names, ()), buckets=(0.5, 1, 10))
    their_wait = Histogram("wait_seconds", "Wait.", names, buckets=(0.5, 1, 10), registry=registry)

    for number in range(4):
        for of_series in values[: number % 2 + 1]:
            texts.labels(*of_series).inc(10.0**number)
            theirs.labels(*of_series).inc(10.0**number)
            wait.labels(*of_series).observe(number / 3)
            their_wait.labels(*of_series).observe(number / 3)
        rows.labels().set(number)
        their_rows.set(number)
        page = "".join(family.text(family.sums()) for family in (texts, rows, wait))

        written = generate_latest(registry).decode().splitlines(keepends=True)
        assert page == "".join(line for line in written if "_created" not in line)
