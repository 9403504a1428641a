"""`dragoman serve --demo`: the first translation of a server that is about to start, through its own gRPC port."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from service.client import Client
from service.errors import DragomanError

READY_WITHIN_S = 60.0  # the model has to load first
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - where to call a server that listens everywhere


@contextmanager
def demonstration(text: str | None, host: str, port: int) -> Iterator[None]:
    """While the block runs a server, translate one text through it as soon as it is ready, and print both."""
    if text is None:
        yield
        return
    client = Client(f"{_EVERY_ADDRESS.get(host, host)}:{port}")
    thread = Thread(target=_demonstrate, args=(client, text), name="demo")
    thread.start()
    try:
        yield
    finally:
        client.close()  # ends its call if the server never got ready
        thread.join()


def _demonstrate(client: Client, text: str) -> None:
    try:
        client.wait_until_ready(READY_WITHIN_S)
        (translation,) = client.translate([text]).translations
        print(f"\n  {text}\n  {translation.text}\n", flush=True)
        print(f'Serving at {client.address} until Ctrl-C. Elsewhere: dragoman translate "{text}"', flush=True)
    except (DragomanError, ValueError):  # ValueError: the channel was closed
        return  # the server says itself why it does not serve
