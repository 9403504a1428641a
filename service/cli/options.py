"""Options that several commands have: a bundle, the way to a server, how to search.

The API key comes from the environment or a file, never from an argument: those can be read by everybody on the machine.
`protos/translation.proto` has the meanings and the ranges of how to search.
"""

import os
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from service.errors import Unavailable
from service.ranges import WAIT, Range
from service.records import OPTIONS, TranslateOptions

if TYPE_CHECKING:
    from service.client import Client, ClientConfig

_Command = TypeVar("_Command", bound=Callable[..., None])


def ranged(within: Range, *names: str, help: str, metavar: str | None = None) -> Any:  # noqa: A002 - as typer's own
    """Return an option that takes the numbers of a range; its help says which.

    Every number that a command takes is one of these: tests/unit/service/cli/test_number_options.py.
    """

    def parse(given: str | float) -> float:
        try:
            return within.parse(given)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    vars(parse)["within"] = within
    return typer.Option(
        *names, metavar=metavar or _METAVARS.get(within.unit, "N"), help=f"{help}  [{within}]", parser=parse
    )


_METAVARS = {"seconds": "SECONDS", "milliseconds": "MS", "a second": "RATE"}

READY_WITHIN_S = 5.0  # how long `translate` and `models` wait for a server

Server = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Server's host:port.  [default: $DRAGOMAN_SERVER, else 127.0.0.1:50051]"),
]
AdminServer = Annotated[
    str, typer.Option(metavar="ADDRESS", envvar="DRAGOMAN_ADMIN_SERVER", help="The server's admin host:port.")
]
BundleDir = Annotated[
    str | None,
    typer.Option(
        "--bundle",
        metavar="DIR",
        help="Model directory, or the name of an included model; 'default' is the English-German one.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="int8 or fp32, on a GPU fp16.  [default: the best that the bundle has]"),
]
FromLanguage = Annotated[
    str, typer.Option("--from", metavar="LANGUAGE", help="BCP 47, like en.  [default: detected, or the model's]")
]
ToLanguage = Annotated[str, typer.Option("--to", metavar="LANGUAGE", help="BCP 47, like de.  [default: the model's]")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="As `dragoman models` shows it.")]
Wait = Annotated[float, ranged(WAIT, help="How long to wait for the server to be ready.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", envvar="DRAGOMAN_CONFIG", help="Settings in TOML.")
]


def examples(*lines: str) -> str:
    """Return the end of a help page, one example a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def with_examples(*lines: str) -> Callable[[_Command], _Command]:
    """Have the help page of a command end with these examples."""

    def decorate(command: _Command) -> _Command:
        vars(command)["epilog"] = examples(*lines)
        return command

    return decorate


def text_in(file: Path) -> str:
    """Return the content of a file; raises ValueError with its name if it is no UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not valid UTF-8 at byte {error.start}") from error


def require_bundle_options(
    bundle: Path | None, *, server: str | None, precision: str | None = None, threads: int | None = None
) -> None:
    """Raise ValueError for options of a server that is not called, or of a bundle that is not given."""
    if bundle is not None and server is not None:
        raise ValueError("give --server or --bundle, not both")
    for name, value in (("--precision", precision), ("--threads", threads)):
        if bundle is None and value is not None:
            raise ValueError(f"{name} needs --bundle: a server has settings of its own for that")


def bundle_dir(name: str | None) -> Path | None:
    """Return the directory that `--bundle` names, None without it.

    Raises:
        ValueError: the name is empty, as of a variable that is not set, or fits two bundles.
    """
    from model.bundle import named_bundle_dir

    if name == "":
        raise ValueError("--bundle is empty: give a directory, or the name of an included model")
    return None if name is None else named_bundle_dir(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the command line says about the way to a server."""

    tls: Annotated[bool, typer.Option("--tls", help="Encrypt; implied by --ca and --cert.")] = False
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PEM: who signed the server's certificate.  [default: the system's]"),
    ] = None
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: this client's certificate; with --key.")] = (
        None
    )
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: its key.")] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the API key.  [default: $DRAGOMAN_API_KEY, if set]"),
    ] = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("--cert and --key belong together: give both or none")

    def client_config(self) -> "ClientConfig":
        """Return the environment's client settings with those of the command line."""
        from service.client.channel import TlsOptions, config_from_environment

        config = config_from_environment()
        if self.tls or self.ca is not None or self.cert is not None:
            files = {"root_certificates": self.ca, "private_key": self.key, "certificate_chain": self.cert}
            given: dict[str, Any] = {name: file for name, file in files.items() if file is not None}
            config = replace(config, tls=replace(config.tls or TlsOptions(), **given))
        if self.api_key_file is None:
            return config
        first_line, *_ = text_in(self.api_key_file).splitlines() or [""]
        if not first_line.strip():
            raise ValueError(f"{self.api_key_file} has no API key in its first line")
        return replace(config, api_key=first_line.strip())

    def absolute(self) -> "Connection":
        """Return the same connection with paths that hold in any working directory."""
        ca, cert, key, api_key_file = (
            None if file is None else file.absolute() for file in (self.ca, self.cert, self.key, self.api_key_file)
        )
        return replace(self, ca=ca, cert=cert, key=key, api_key_file=api_key_file)


def server_address(server: str | None) -> str:
    """Return the address to call: the one given, else the environment's, else the default.

    Raises:
        ValueError: it is none.
    """
    from service.client.channel import DEFAULT_ADDRESS, checked_target

    return checked_target(server or os.environ.get("DRAGOMAN_SERVER") or DEFAULT_ADDRESS)


def wait_for(client: "Client", wait_s: float) -> None:
    """Return when the server is ready; the message of Unavailable says what else the user can do."""
    try:
        client.wait_until_ready(wait_s)
    except Unavailable as error:
        advice = "start one with `dragoman serve`, or work without a server: --bundle default"
        raise Unavailable(f"{error}; {advice}") from error


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of its parameters that are records, and of the records in those."""
    parameters = signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def with_fields(**values: Any) -> None:
        command(**{parameter.name: _value_of(parameter, values) for parameter in parameters})

    options = [option for parameter in parameters for option in _options_of(parameter)]
    vars(with_fields)["__signature__"] = Signature(options)  # typer reads it
    return with_fields


def _options_of(parameter: Parameter) -> list[Parameter]:
    if parameter.annotation is TranslateOptions:
        return [_search_option(each) for each in _SEARCH]
    if is_dataclass(parameter.annotation):
        return [option for inner in _fields_of(parameter) for option in _options_of(inner)]
    return [parameter.replace(kind=Parameter.KEYWORD_ONLY)]


def _value_of(parameter: Parameter, values: dict[str, Any]) -> Any:
    if parameter.annotation is TranslateOptions:
        return _search(values)
    if is_dataclass(parameter.annotation):
        record: Any = parameter.annotation
        return record(**{inner.name: _value_of(inner, values) for inner in _fields_of(parameter)})
    return values[parameter.name]


def _fields_of(parameter: Parameter) -> list[Parameter]:
    record: Any = parameter.annotation
    return [*signature(record, eval_str=True).parameters.values()]


_SEARCH = [each for each in fields(TranslateOptions) if OPTIONS[each.name].help]


def _search(values: dict[str, Any]) -> TranslateOptions:
    """Return the options of a search; those not given are the model's."""
    given = {each.name: values[each.name] for each in _SEARCH}
    for name, value in given.items():
        if isinstance(value, bool):
            given[name] = OPTIONS[name].flag_gives if value else None
    given["suppressed_phrases"] = tuple(given["suppressed_phrases"])
    if given["sampling_top_k"] and given["beam_size"] is None:  # tokens are drawn with a beam of 1
        given["beam_size"] = 1
    return TranslateOptions(**given)


def _search_option(each: "Field[Any]") -> Parameter:
    option = OPTIONS[each.name]
    names = option.names or ("--" + each.name.replace("_", "-"),)
    kind: Any = Annotated[list[str], typer.Option(*names, metavar="PHRASE", help=option.help)]
    default: Any = []
    if option.range is not None:
        kind, default = Annotated[each.type, ranged(option.range, *names, help=option.help)], None
    elif each.type == bool | None:
        kind, default = Annotated[bool, typer.Option(*names, help=option.help)], False
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
