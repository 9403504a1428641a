"""Every number that a command takes: it has bounds, and says them."""

import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer

from service.cli.app import COMMANDS, command_named
from service.ranges import Range
from tests.fakes.command_line import run


def options_of(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for inner, one in getattr(command, "commands", {}).items():
        yield from options_of(f"{name} {inner}", one)
    for parameter in command.params:
        if hasattr(parameter, "type_descriptor"):  # not so --help
            yield f"{name} {parameter.opts[0]}", parameter.type_descriptor


NUMBERS = {
    option: descriptor.parameter_info
    for command in COMMANDS
    for option, descriptor in options_of(command, command_named(command))
    if {int, float} & {descriptor.annotation, *get_args(descriptor.annotation)}
}


def test_the_numbers_are_found():
    assert {"serve --port", "translate --timeout", "loadtest --rate", "keys new --weight"} <= {*NUMBERS}


def test_every_number_that_a_command_takes_has_bounds():
    for option in NUMBERS:
        require_bounds(option)


def require_bounds(option: str) -> None:
    parse = NUMBERS[option].parser
    within: Range = vars(parse)["within"]

    assert -math.inf < within.least <= within.most < math.inf
    assert (parse(str(within.least)), parse(str(within.most))) == (within.least, within.most)
    assert str(within) in NUMBERS[option].help
    for wrong in (
        "nan",
        "inf",
        "-inf",
        "1e999",
        str(within.least - 1),
        str(within.most + 1),
        "",
        "x",
        "1 2",
        "9" * 5_000,
    ):
        with pytest.raises(typer.BadParameter, match=r"from .* to .* is accepted"):
            parse(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("translate", "--timeout", "inf", "hi"),
            "'--timeout': inf is given, from 0.001 to 86,400 seconds is accepted",
        ),
        (("translate", "--wait", "1e10", "hi"), "'--wait': 1e10 is given, from 0 to 86,400 seconds is accepted"),
        (("health", "--timeout", "-1"), "'--timeout': -1 is given, from 0.001"),
        (("serve", "--port", "70000"), "'--port': 70000 is given, from 0 to 65,535 is accepted"),
        (
            ("translate", "--threads", "4.5", "hi"),
            "'--threads': '4.5' is no whole number; from 1 to 256 threads is accepted",
        ),
        (("loadtest", "--rate", "1", "--rate", "nan"), "'--rate': nan is given, from 0.001 to 1,000,000 a second"),
    ],
)
def test_a_number_out_of_its_range_is_told_with_the_option_and_the_range(arguments, message):
    ended = run(*arguments)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert message in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("health",),
        ("translate", "hi"),
        ("models",),
        ("status",),
        ("reload",),
        ("log-level", "info"),
        ("loadtest", "--rate", "1"),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1:115787", "127.0.0.1:abc", "127.0.0.1:-1", "http://127.0.0.1:50051"])
def test_an_address_that_is_none_ends_every_command_with_one_line_that_repeats_it(arguments, address):
    ended = run(*arguments, "--server", address)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("dragoman: ")
    assert address in ended.stderr
    assert ended.stderr.count("\n") == 1
