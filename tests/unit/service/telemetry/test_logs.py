"""Logs: what a line holds, what it never does, and that a line that cannot be written costs nothing else."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import warnings
from io import StringIO
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.config import TelemetryConfig
from service.telemetry.logs import (
    LogLimit,
    LogStream,
    configure_logging,
    describe_error,
    get_logger,
    log_libraries,
    printable,
)

FULL = Path("/dev/full")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Drops:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def logged(config: TelemetryConfig, stream: StringIO) -> str:
    configure_logging(config, stream)
    get_logger().info("serving", grpc_port=1, name="a\u202eb\x1b[2J\r\nforged=line")
    return stream.getvalue()


@pytest.mark.promise("C5")
@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_line_is_json_where_nobody_looks(log_format):
    line = logged(TelemetryConfig(log_format=log_format), StringIO())
    event = json.loads(line)

    assert (event["event"], event["level"], event["grpc_port"]) == ("serving", "info", 1)
    assert event["timestamp"].endswith("Z")
    assert "\u202e" not in line


@pytest.mark.parametrize(("log_format", "stream"), [("console", StringIO()), ("auto", Terminal())])
def test_line_is_for_people_on_a_terminal_and_commands_it_nothing(log_format, stream):
    line = logged(TelemetryConfig(log_format=log_format), stream)

    assert "serving" in line
    assert not line.startswith("{")
    assert line.count("\n") == 1
    assert [harm for harm in ("\u202e", "\x1b[2J", "\r") if harm in line] == []


def test_error_is_described_by_type_and_place_without_its_message():
    def fail() -> None:
        raise ValueError("a secret text")

    try:
        fail()
    except ValueError as error:
        description = describe_error(error)

    assert description["error"] == "ValueError"
    assert " fail < " in description["trace"]
    assert "secret" not in str(description)


def test_an_error_of_endless_recursion_is_described_in_a_line_of_usual_length():
    def fail() -> None:
        fail()

    try:
        fail()
    except RecursionError as error:
        description = describe_error(error)

    assert description["trace"].count(" < ") < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Grüße 你好", "Grüße 你好"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\x7f\x9b", r"a\nb\x7f\x9b"),
        ("a\u200bb\u202ec\ufeff", r"a\u200bb\u202ec\ufeff"),
        ("\U000e0001", r"\U000e0001"),
        ("x" * 12, "x" * 12),
        ("\n" + "x" * 12, r"\nxxxxxxxx..."),
    ],
)
def test_only_what_can_be_seen_is_left_as_it_is(text, expected):
    assert printable(text, max_characters=12) == expected


def test_lines_over_the_limit_are_counted_and_the_next_period_tells_how_many():
    now = 0.0
    limit = LogLimit(max_lines=2, period_s=60.0, clock=lambda: now)

    first = [limit.take() for _ in range(5)]
    now = 59.9
    same_period = limit.take()
    now = 60.0
    next_period = [limit.take(), limit.take(), limit.take()]

    assert (first, same_period, next_period) == ([0, 0, None, None, None], None, [4, 0, None])


def test_a_long_line_reaches_the_descriptor_whole_and_at_once(tmp_path):
    line, drops = "ä" * 10_000 + "\n", Drops()
    with (tmp_path / "log").open("w") as stream:
        LogStream(stream, drops).write(line)
        written = (tmp_path / "log").read_bytes()

    assert (written, drops.count) == (line.encode(), 0)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full, a disk that is always full, on this system")
def test_a_full_disk_loses_lines_and_later_ones_are_written(tmp_path):
    drops = Drops()
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
        for _ in range(3):
            reader.read(4_096)
        stream.write("kept\n")
        os.set_blocking(read_end, False)
        rest = reader.read(1 << 20)

    assert drops.count == 1
    assert rest is not None
    assert rest.endswith(b"\nkept\n")


@pytest.mark.parametrize("is_there", [False, True])
def test_without_an_open_stream_every_line_is_lost(tmp_path, is_there):
    drops = Drops()
    closed = (tmp_path / "log").open("w")
    stream = LogStream(closed if is_there else None, drops)
    closed.close()

    stream.write("lost\n")

    assert drops.count == 1


class TestLibraries:
    @pytest.fixture
    def libraries(self, monkeypatch):
        """What Python calls, set back afterwards."""
        for place in ("warnings.showwarning", "threading.excepthook", "sys.unraisablehook"):
            monkeypatch.setattr(place, None)
        monkeypatch.setattr("logging.root.handlers", [])
        log_libraries()

    def test_what_they_say_is_logged_without_their_words(self, libraries):
        with capture_logs() as entries:
            warnings.showwarning("a secret", RuntimeWarning, "numpy/core.py", 17)
            logging.getLogger("asyncio").error("a secret %s", "text", exc_info=ValueError("a secret"))
            thread = threading.Thread(target=int, args=("a secret",))
            thread.start()
            thread.join()

        assert [entry["event"] for entry in entries] == ["library_message"] * 3
        assert [(entry["log_level"], entry["source"]) for entry in entries] == [
            ("warning", "RuntimeWarning"),
            ("error", "asyncio"),
            ("error", "python"),
        ]
        assert entries[0]["place"] == "numpy/core.py:17"
        assert [entry.get("error") for entry in entries] == [None, "ValueError", "ValueError"]
        assert "secret" not in str(entries)

    def test_ten_lines_a_minute_are_written_however_much_they_say(self, libraries):
        with capture_logs() as entries:
            for _ in range(1_000):
                logging.getLogger("library").warning("again")

        assert len(entries) == 10


class TestStandardError:
    WRITE = """
import os, sys
from service.telemetry.logs import never_wait_for_stderr
never_wait_for_stderr()
written = 0
try:
    while True:
        written += os.write(2, b"x" * 4096)
except BlockingIOError:
    print(written)
"""

    @pytest.fixture
    def pipe(self):
        """The end of a pipe that is written to."""
        reader, writer = os.pipe()
        yield writer
        os.close(reader)
        os.close(writer)

    def write_until_full(self, descriptor: int, before: str = "") -> int:
        """How many bytes a process writes that nobody reads; it ends."""
        command = [sys.executable, "-c", before + self.WRITE]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=descriptor, timeout=120.0, check=True)
        return int(done.stdout)

    def test_pipe_that_nobody_reads_stops_nobody_and_keeps_its_flags(self, pipe):
        assert self.write_until_full(pipe) > 0
        assert os.get_blocking(pipe)

    def test_pipe_that_cannot_be_opened_anew_stops_nobody(self, pipe):
        """As in a container whose user does not own the pipe."""
        assert self.write_until_full(pipe, "import os\ndef fail(*_): raise PermissionError\nos.open = fail\n") > 0

    def test_socket_that_nobody_reads_stops_nobody(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert self.write_until_full(theirs.fileno()) > 0

    def test_closed_standard_error_is_no_error(self):
        command = "from service.telemetry.logs import never_wait_for_stderr; never_wait_for_stderr()"

        assert subprocess.run(["sh", "-c", f"exec 2>&-; {sys.executable} -c '{command}'"], check=False).returncode == 0
