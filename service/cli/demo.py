"""`dragoman serve --demo`: the first translation of a server that is about to start, through its own gRPC port."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread

from service.client import Client
from service.client.channel import ClientConfig, TlsOptions, config_from_environment
from service.config import ServerConfig
from service.errors import DragomanError
from service.grpc.listening import Address

READY_WITHIN_S = 60.0  # the model has to load first
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to call a server that listens everywhere


@contextmanager
def demonstration(text: str | None, config: ServerConfig) -> Iterator[None]:
    """While the block runs this server, translate one text through it as soon as it is ready, and print both.

    Raises:
        OSError: the certificate cannot be read.
        ValueError: the port is any free one.
    """
    if text is None:
        yield
        return
    client = Client(own_address(config), client_config(config))
    is_stopping = Event()
    thread = Thread(target=_demonstrate, args=(client, text, is_stopping), name="demo")
    thread.start()
    try:
        yield
    finally:
        is_stopping.set()
        client.close()  # ends its call if the server never got ready
        thread.join()


def own_address(config: ServerConfig) -> str:
    """Where to call this server from here.

    Raises:
        ValueError: the port is any free one, which only the server will know.
    """
    host, port = config.listen.grpc_host, config.listen.grpc_port
    if port == 0:
        raise ValueError("--demo calls the gRPC port, which is 0, any free one: give a --port")
    return str(Address(_EVERY_ADDRESS.get(host, host), port))


def client_config(config: ServerConfig) -> ClientConfig:
    """How to call this server from here: with the environment's API key and TLS, trusting the server's certificate."""
    known = config_from_environment()
    certificate = config.security.tls_certificate
    if certificate is None:
        return replace(known, tls=None)
    tls = known.tls or TlsOptions()
    return replace(known, tls=replace(tls, root_certificates=tls.root_certificates or certificate))


def _demonstrate(client: Client, text: str, is_stopping: Event) -> None:
    try:
        client.wait_until_ready(READY_WITHIN_S)
        (translation,) = client.translate([text]).translations
        print(f"\n  {text}\n  {translation.text}\n", flush=True)
        print(f'Serving at {client.address} until Ctrl-C. Elsewhere: dragoman translate "{text}"', flush=True)
    except DragomanError as error:
        if not is_stopping.is_set():  # else the server says itself why it does not serve
            advice = "the demonstration takes its API key and TLS from DRAGOMAN_API_KEY and DRAGOMAN_TLS_*"
            print(f"dragoman: no demonstration: {error}; {advice}", file=sys.stderr, flush=True)
