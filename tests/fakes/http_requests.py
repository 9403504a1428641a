"""Short ways to ask a server over HTTP in tests."""

import http.client
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(port: int, verb: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """The answer of a server on this machine, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(verb, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def post(port: int, path: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Answer:
    """The answer to fields in JSON."""
    return ask(port, "POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json", **(headers or {})})


def post_form(port: int, path: str, *fields: tuple[str, str], verb: str = "POST") -> Answer:
    """The answer to fields in a form as browsers send them."""
    return ask(port, verb, path, urlencode(fields).encode(), FORM)


def post_multipart(
    port: int, path: str, fields: Iterable[tuple[str, str]], file: tuple[str, bytes] | None = None
) -> Answer:
    """The answer to fields, and to a file with its name, in a form of several parts."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields]
    if file is not None:
        parts.append(
            f'Content-Disposition: form-data; name="file"; filename="{file[0]}"\r\n\r\n'.encode() + file[1] + b"\r\n"
        )
    body = b"".join(b"--limit\r\n" + part for part in parts) + b"--limit--\r\n"
    return ask(port, "POST", path, body, {"Content-Type": "multipart/form-data; boundary=limit"})
