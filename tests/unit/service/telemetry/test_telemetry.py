"""Logs: what a line holds, and what it never does."""

import json
from io import StringIO

import pytest

from service.config import TelemetryConfig
from service.telemetry.escaping import printable
from service.telemetry.log_limit import LogLimit
from service.telemetry.logs import configure_logging, describe_error, get_logger


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


def test_characters_that_command_a_terminal_are_escaped_on_it():
    stream = Terminal()
    configure_logging(TelemetryConfig(), stream)
    get_logger().info("serving", name="a\u202eb\x1b[2J\r\nforged=line")
    line = stream.getvalue()

    assert line.count("\n") == 1
    assert [harm for harm in ("\u202e", "\x1b[2J", "\r") if harm in line] == []
    assert r"\x1b[2J" in line


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Grüße 你好", "Grüße 你好"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\x7f\x9b", r"a\nb\x7f\x9b"),
        ("a\u200bb\u202ec\ufeff", r"a\u200bb\u202ec\ufeff"),
        ("\U000e0001", r"\U000e0001"),
        ("", ""),
    ],
)
def test_only_what_can_be_seen_is_left_as_it_is(text, expected):
    assert printable(text) == expected


def test_long_text_is_cut_before_it_is_escaped():
    assert printable("x" * 20, max_characters=10) == "xxxxxxx..."
    assert printable("x" * 10, max_characters=10) == "x" * 10


class TestLogLimit:
    def test_lines_over_the_limit_are_counted_and_the_next_period_tells_how_many(self):
        now = 0.0
        limit = LogLimit(max_lines=2, period_s=60.0, clock=lambda: now)

        first = [limit.take() for _ in range(5)]
        now = 59.9
        same_period = limit.take()
        now = 60.0
        next_period = [limit.take(), limit.take(), limit.take()]

        assert first == [0, 0, None, None, None]
        assert same_period is None
        assert next_period == [4, 0, None]
