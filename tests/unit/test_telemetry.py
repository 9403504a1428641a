"""Logs: what a line holds, and what it never does."""

import json
from io import StringIO

import pytest

from service.config import TelemetryConfig
from service.telemetry.logs import configure_logging, describe_error, get_logger, num_lost_lines


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def logged(config: TelemetryConfig, stream: StringIO) -> str:
    configure_logging(config, stream)
    get_logger().info("serving", grpc_port=1, name="a\u202eb")
    return stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_line_is_json_where_nobody_looks(log_format):
    event = json.loads(logged(TelemetryConfig(log_format=log_format), StringIO()))

    assert (event["event"], event["level"], event["grpc_port"]) == ("serving", "info", 1)
    assert event["timestamp"].endswith("Z")


@pytest.mark.promise("C5")
def test_characters_that_turn_text_around_are_escaped():
    assert "\u202e" not in logged(TelemetryConfig(log_format="json"), StringIO())


@pytest.mark.parametrize(("log_format", "stream"), [("console", StringIO()), ("auto", Terminal())])
def test_line_is_for_people_on_a_terminal(log_format, stream):
    line = logged(TelemetryConfig(log_format=log_format), stream)

    assert "serving" in line
    assert not line.startswith("{")


def test_less_important_events_than_the_level_are_left_out():
    assert logged(TelemetryConfig(log_level="warning"), StringIO()) == ""


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


@pytest.mark.promise("A12")
def test_line_that_cannot_be_written_is_counted_and_forgotten():
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    before = num_lost_lines()

    assert logged(TelemetryConfig(log_format="json"), Full()) == ""
    assert num_lost_lines() == before + 1
