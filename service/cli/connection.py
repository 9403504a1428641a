"""How the commands that call a server reach it: options on the command line -> a client's configuration.

The API key comes from the environment or a file, never from an argument: those can be read by everybody on the machine.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.errors import Unavailable

if TYPE_CHECKING:
    from service.client import Client
    from service.client.channel import ClientConfig

SERVER_VARIABLE = "DRAGOMAN_SERVER"
ADMIN_SERVER_VARIABLE = "DRAGOMAN_ADMIN_SERVER"
API_KEY_VARIABLE = "DRAGOMAN_API_KEY"

Tls = Annotated[bool, typer.Option("--tls", help="Encrypt; implied by --ca and --cert.")]
Ca = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM: who signed the server's certificate.  [default: the system's]")
]
Cert = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: this client's certificate; with --key.")]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM: its key.")]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Its first line is the API key.  [default: ${API_KEY_VARIABLE}, if set]"),
]


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
        """The configuration of a client that connects like this.

        Raises:
            OSError: the file with the API key cannot be read.
        """
        from service.client.channel import TlsOptions, config_from_environment

        config = config_from_environment()
        if self.tls or self.ca is not None or self.cert is not None:
            known = config.tls or TlsOptions()
            tls = replace(
                known,
                root_certificates=self.ca or known.root_certificates,
                private_key=self.key or known.private_key,
                certificate_chain=self.cert or known.certificate_chain,
            )
            config = replace(config, tls=tls)
        return config if self.api_key_file is None else replace(config, api_key=self._api_key())

    def absolute(self) -> "Connection":
        """The same from any working directory."""
        ca, cert, key, api_key_file = (
            None if file is None else file.absolute() for file in (self.ca, self.cert, self.key, self.api_key_file)
        )
        return replace(self, ca=ca, cert=cert, key=key, api_key_file=api_key_file)

    def _api_key(self) -> str:
        assert self.api_key_file
        first_line, *_ = self.api_key_file.read_text(encoding="utf-8").splitlines() or [""]
        if not first_line.strip():
            raise ValueError(f"{self.api_key_file} has no API key in its first line")
        return first_line.strip()


def server_address(server: str | None) -> str:
    """The address to call: the one given, else the environment's, else the default."""
    from service.client.channel import DEFAULT_ADDRESS

    return server or os.environ.get(SERVER_VARIABLE) or DEFAULT_ADDRESS


def admin_address(server: str | None) -> str:
    """The admin port to call: the one given, else the environment's, else the default."""
    from service.client.admin import DEFAULT_ADMIN_ADDRESS

    return server or os.environ.get(ADMIN_SERVER_VARIABLE) or DEFAULT_ADMIN_ADDRESS


def wait_for(client: "Client", wait_s: float) -> None:
    """Return when the server is ready; the error says what else could be done."""
    try:
        client.wait_until_ready(wait_s)
    except Unavailable as error:
        advice = "start one with `dragoman serve`, or work without a server: --bundle default"
        raise Unavailable(f"{error}; {advice}") from error
