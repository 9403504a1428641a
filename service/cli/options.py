"""Options that several commands have: a bundle, the way to a server, how to search.

The API key comes from the environment or a file, never from an argument: those can be read by everybody on the machine.
`protos/translation.proto` has the meanings and the ranges of how to search.
"""

import os
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, replace
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
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt; implied by --ca and --cert.")]
Ca = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM: who signed the server's certificate.  [default: the system's]")
]
Cert = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: this client's certificate; with --key.")]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: its key.")]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its first line is the API key.  [default: $DRAGOMAN_API_KEY, if set]"),
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
    str | None, typer.Option(help="int8 or fp32, on a GPU fp16; the best the bundle has if not given.")
]
FromLanguage = Annotated[str, typer.Option("--from", help="BCP 47; empty for the model's.")]
ToLanguage = Annotated[str, typer.Option("--to", help="BCP 47; empty for the model's.")]
Model = Annotated[str | None, typer.Option(help="Name as `dragoman models` shows it.")]
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
        return file.read_text(encoding="utf-8")
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

    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    api_key_file: Path | None = None

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


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection after `--server`; it takes them as its first argument."""

    @wraps(command)
    def with_options(
        *, tls: bool, ca: Path | None, cert: Path | None, key: Path | None, api_key_file: Path | None, **others: Any
    ) -> None:
        command(Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file), **others)

    kinds = {"tls": Tls, "ca": Ca, "cert": Cert, "key": Key, "api_key_file": ApiKeyFile}
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False if kind is Tls else None, annotation=kind)
        for name, kind in kinds.items()
    ]
    parameters: list[Parameter] = []
    for parameter in list(signature(command, eval_str=True).parameters.values())[1:]:
        parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        parameters += options if parameter.name == "server" else []
    vars(with_options)["__signature__"] = Signature(parameters)  # typer reads it
    return with_options


def with_record(command: Callable[[Any], None]) -> Callable[..., None]:
    """Give a command, which takes one record, an option for each field of the record; `connection` is the first."""
    (record,) = signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def with_fields(connection: Connection, **values: Any) -> None:
        command(record.annotation(connection=connection, **values))

    vars(with_fields)["__signature__"] = signature(record.annotation)
    return with_connection(with_fields)


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


def with_search(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a search in place of its parameter `search`; those not given are the model's."""
    shown = [each for each in fields(TranslateOptions) if OPTIONS[each.name].help]

    @wraps(command)
    def with_options(*args: Any, **values: Any) -> None:
        given = {each.name: values.pop(each.name) for each in shown}
        for name, value in given.items():
            if isinstance(value, bool):
                given[name] = OPTIONS[name].flag_gives if value else None
        given["suppressed_phrases"] = tuple(given["suppressed_phrases"])
        if given["sampling_top_k"] and given["beam_size"] is None:  # tokens are drawn with a beam of 1
            given["beam_size"] = 1
        command(*args, search=TranslateOptions(**given), **values)

    own = signature(command, eval_str=True)
    parameters: list[Parameter] = []
    for parameter in own.parameters.values():
        parameters += map(_search_parameter, shown) if parameter.name == "search" else [parameter]
    vars(with_options)["__signature__"] = own.replace(parameters=_keywords_last(parameters))
    return with_options


def _search_parameter(each: "Field[Any]") -> Parameter:
    option = OPTIONS[each.name]
    names = option.names or ("--" + each.name.replace("_", "-"),)
    kind: Any = Annotated[list[str], typer.Option(*names, metavar="PHRASE", help=option.help)]
    default: Any = []
    if option.range is not None:
        kind, default = Annotated[each.type, ranged(option.range, *names, help=option.help)], None
    elif each.type == bool | None:
        kind, default = Annotated[bool, typer.Option(*names, help=option.help)], False
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _keywords_last(parameters: list[Parameter]) -> list[Parameter]:
    """Return the parameters, of which only the first can be given without its name."""
    return [parameters[0], *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters[1:])]
