"""Lines that cannot be written are counted, and nothing else happens."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest

from service.config import TelemetryConfig
from service.telemetry.log_stream import LogStream
from service.telemetry.logs import configure_logging, get_logger

FULL = Path("/dev/full")


class Drops:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_line_reaches_the_descriptor_at_once(tmp_path):
    drops = Drops()
    with (tmp_path / "log").open("w") as stream:
        LogStream(stream, drops).write("größe\n")
        written = (tmp_path / "log").read_bytes()

    assert (written, drops.count) == ("größe\n".encode(), 0)


def test_a_full_disk_loses_lines_and_later_ones_are_written(tmp_path):
    drops = Drops()
    if not FULL.exists():
        pytest.skip("no /dev/full, a disk that is always full, on this system")
    with FULL.open("w") as full, (tmp_path / "log").open("w") as good:
        stream = LogStream(full, drops)
        stream.write("lost\n")
        os.dup2(good.fileno(), full.fileno())
        stream.write("kept\n")

    assert ((tmp_path / "log").read_text(), drops.count) == ("kept\n", 1)


def test_a_reader_that_stopped_costs_lines_and_stops_nobody():
    drops = Drops()
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as pipe, os.fdopen(read_end, "rb", buffering=0) as reader:
        stream = LogStream(pipe, drops)
        while drops.count == 0:
            stream.write("x" * 999 + "\n")
        before = drops.count
        for _ in range(3):
            reader.read(4_096)
        stream.write("kept\n")
        os.set_blocking(read_end, False)
        rest = reader.read(1 << 20)

    assert before == drops.count == 1
    assert rest is not None
    assert rest.endswith(b"\nkept\n")


def test_a_long_line_arrives_whole(tmp_path):
    line = "ä" * 10_000 + "\n"
    with (tmp_path / "log").open("w") as stream:
        LogStream(stream).write(line)

    assert (tmp_path / "log").read_text() == line


@pytest.mark.parametrize("kind", ["none", "closed", "closed file"])
def test_without_a_stream_every_line_is_lost(tmp_path, kind):
    drops = Drops()
    closed = StringIO() if kind == "closed" else (tmp_path / "log").open("w")
    stream = LogStream(None if kind == "none" else closed, drops)
    closed.close()

    stream.write("lost\n")

    assert drops.count == 1


def test_logging_to_a_closed_stream_raises_nothing():
    drops, stream = Drops(), StringIO()
    configure_logging(TelemetryConfig(log_format="json"), stream, on_drop=drops)
    stream.close()

    get_logger().error("something")

    assert drops.count == 1


def test_a_stream_is_a_terminal_only_if_there_is_one():
    assert not LogStream(None).isatty()
    assert not LogStream(StringIO()).isatty()


def test_threads_that_log_at_once_lose_nothing(tmp_path):
    drops = Drops()
    with (tmp_path / "log").open("w") as stream:
        configure_logging(TelemetryConfig(), stream, on_drop=drops)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: get_logger().warning("line", number=number), range(400)))

    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(line["number"] for line in lines) == list(range(400))
    assert drops.count == 0
