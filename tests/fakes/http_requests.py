"""Short ways to ask a server over HTTP in tests."""

import http.client
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlencode

Place: TypeAlias = int | http.client.HTTPConnection  # a port, or an open connection
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    port: Place, verb: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """The answer of a server on this machine, over a connection of its own where none is given."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0) if isinstance(port, int) else port
    try:
        connection.request(verb, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        if isinstance(port, int):
            connection.close()


def post(port: Place, path: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Answer:
    """The answer to fields in JSON."""
    return ask(port, "POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json", **(headers or {})})


def post_form(port: Place, path: str, *fields: tuple[str, str], verb: str = "POST") -> Answer:
    """The answer to fields in a form as browsers send them."""
    return ask(port, verb, path, urlencode(fields).encode(), FORM)


def post_multipart(
    port: Place,
    path: str,
    fields: Iterable[tuple[str, str]],
    file: tuple[str, bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """The answer to fields, and to a file with its name, in a form of several parts."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields]
    if file is not None:
        parts.append(
            f'Content-Disposition: form-data; name="file"; filename="{file[0]}"\r\n\r\n'.encode() + file[1] + b"\r\n"
        )
    body = b"".join(b"--limit\r\n" + part for part in parts) + b"--limit--\r\n"
    return ask(port, "POST", path, body, {"Content-Type": "multipart/form-data; boundary=limit", **(headers or {})})
