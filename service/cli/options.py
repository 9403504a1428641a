"""Options that several commands have, and what they stand for."""

from pathlib import Path
from typing import Annotated

import typer

CONFIG_VARIABLE = "DRAGOMAN_CONFIG"  # names the file of settings where no `--config` does
READY_WITHIN_S = 5.0  # how long `translate`, `models` and `status` wait for a server

Server = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Server's host:port.  [default: $DRAGOMAN_SERVER, else 127.0.0.1:50051]"),
]
AdminServer = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The server's admin host:port.  [default: $DRAGOMAN_ADMIN_SERVER, else 127.0.0.1:50052]",
    ),
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
Wait = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="How long to wait for the server to be ready.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", envvar=CONFIG_VARIABLE, help="Settings in TOML.")
]


def examples(*lines: str) -> str:
    """The end of a help page, one example a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def require_bundle_options(
    bundle: Path | None, *, server: str | None, precision: str | None = None, threads: int | None = None
) -> None:
    """Make sure that nothing was said of a server that is not called, or of a bundle that is not there.

    Raises:
        ValueError: something was.
    """
    if bundle is not None and server is not None:
        raise ValueError("give --server or --bundle, not both")
    for name, value in (("--precision", precision), ("--threads", threads)):
        if bundle is None and value is not None:
            raise ValueError(f"{name} needs --bundle: a server has settings of its own for that")


def bundle_dir(name: str | None) -> Path | None:
    """The directory that `--bundle` names: see `named_bundle_dir`; None where it names none.

    Raises:
        BundleError: it names two.
    """
    if not name:
        return None
    from model.bundle import named_bundle_dir

    return named_bundle_dir(name)
