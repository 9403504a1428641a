"""Files that are replaced while the server runs: which changes are seen, and what one that cannot be read does."""

import json
from pathlib import Path

import pytest

from service.config import ConfigError
from service.watched_files import WatchedFiles, read_again
from tests.fakes.clock import Clock
from tests.fakes.logs import log

__all__ = ["log"]

PERIOD_S = 10.0


class Reader:
    """Reads a file, unless the test has it fail."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.error: Exception | None = None

    def __call__(self) -> str:
        if self.error is not None:
            raise self.error
        return self.file.read_text() if self.file.exists() else "none"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watch(read: Reader, clock: Clock) -> WatchedFiles[str]:
    return WatchedFiles(
        [read.file], read, name="it", facts=lambda value: {"length": len(value)}, period_s=PERIOD_S, clock=clock
    )


def test_a_change_is_seen_after_the_period_and_not_before(tmp_path, clock, log):
    file = tmp_path / "file"
    file.write_text("old")
    watched = watch(Reader(file), clock)
    file.write_text("newer")

    clock.now = 9.9
    assert watched.current() == "old"
    clock.now = 10.0
    assert watched.current() == "newer"

    event = json.loads(log.getvalue())
    assert (event["event"], event["length"]) == ("it_reloaded", 5)


def test_a_file_of_a_size_that_no_keys_have_is_not_read(tmp_path):
    file = tmp_path / "file"
    with file.open("wb") as stream:
        stream.truncate((1 << 20) + 1)

    with pytest.raises(ConfigError, match=r"security.tls_key: .* has 1,048,577 bytes, at most 1,048,576 are accepted"):
        read_again("security.tls_key", file)


def test_a_file_that_cannot_be_read_is_tried_each_period_though_it_stays_the_same_and_each_reason_logged_once(
    tmp_path, clock, log
):
    file = tmp_path / "file"
    file.write_text("old")
    read = Reader(file)
    watched = watch(read, clock)
    file.write_text("newer")

    errors = [ConfigError("no file of ours"), ConfigError("no file of ours"), PermissionError("not for you")]
    for number, read.error in enumerate(errors, 1):
        clock.now = number * PERIOD_S
        assert watched.current() == "old"
    read.error = None
    clock.now = 4 * PERIOD_S

    assert watched.current() == "newer"
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["it_not_reloaded", "it_not_reloaded", "it_reloaded"]
