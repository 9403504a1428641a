"""What every call over HTTP goes through, on a real port: key, id, clock, errors as statuses, the book."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from service.addresses import Address
from service.api.auth import Authenticator, TrustedProxies, digest_of, generate_key, watch_keys
from service.api.http.fields import File
from service.api.http.handlers import LARGE_FILES, HttpCalls
from service.api.http.operations import Dialect, HttpRequest, operation
from service.api.http.server import HttpServer
from service.api.lifecycle import CallLifecycle
from service.call import Call
from service.config import LimitsConfig
from service.errors import (
    DragomanError,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    PermissionDenied,
    Unavailable,
)
from service.telemetry.metrics import Metrics
from tests.fakes.books import samples
from tests.fakes.calls import eventually
from tests.fakes.logs import log

__all__ = ["log"]

SECRET = "geheim"
MAX_BODY_BYTES = 200_000
DIALECT = Dialect(name="test", text_field="q", key_field="api_key")


class Harness:
    """A server whose /ask is answered by `behaviour`."""

    port = 0

    def __init__(
        self, authenticator: Authenticator | None = None, *, refuse: Any = None, limit_s: float = 60.0
    ) -> None:
        self.metrics = Metrics()
        self.ended: list[Call] = []
        self.asked: list[HttpRequest] = []
        self.behaviour: Any = self.say
        self.book = CallLifecycle(
            self.metrics, authenticator=authenticator, refuse=refuse, observers=[self.ended.append]
        )
        limits = LimitsConfig(
            max_request_seconds=limit_s,
            max_message_bytes=MAX_BODY_BYTES,
            max_document_bytes=2 * MAX_BODY_BYTES,
            max_document_seconds=limit_s,
        )
        self.calls = HttpCalls(self.book, limits)
        self.calls.refusal = None
        self.server = HttpServer(self.calls.routes(self), max_connections=64, timeout_s=30.0)

    @operation(DIALECT, "/file", "Send a file", takes_files=True)
    async def file(self, asked: HttpRequest, call: Call) -> Response:
        return await self.ask(asked, call)

    @operation(DIALECT, "/ask", "Ask", verbs=("GET", "POST"))
    async def ask(self, asked: HttpRequest, call: Call) -> Response:
        self.asked.append(asked)
        response: Response = await self.behaviour(asked, call)
        return response

    async def say(self, asked: HttpRequest, call: Call) -> Response:
        fields = {name: value for name, value in asked.fields.items() if not isinstance(value, File)}
        return JSONResponse({"caller": call.caller.name, "priority": asked.priority, "fields": fields})

    def raising(self, error: BaseException) -> None:
        async def behaviour(asked: HttpRequest, call: Call) -> Response:
            raise error

        self.behaviour = behaviour

    async def send(self, body: bytes = b"{}", *headers: str, verb: str = "POST", path: str = "/ask") -> "Answer":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = [f"{verb} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close", *headers]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        answer = await reader.read()
        writer.close()
        return Answer(answer)

    def codes(self) -> dict[str, float]:
        page = b"".join(self.metrics.exposition()).decode()
        return {labels["code"]: value for name, labels, value in samples(page) if name == "dragoman_requests_total"}


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1]) if first else 0
        self.headers = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}

    def json(self) -> Any:
        return json.loads(self.body)


@asynccontextmanager
async def running(harness: Harness) -> AsyncIterator[Harness]:
    harness.port = await harness.server.start(Address("127.0.0.1", 0), "HTTP")
    yield harness
    await harness.server.stop()


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with running(Harness()) as one:
        yield one


async def test_answer_has_the_callers_id_or_a_new_one_and_the_call_is_counted(harness):
    named = await harness.send(b"{}", "X-Request-Id: mine-1")
    unnamed = await harness.send()

    assert (named.status, named.headers["x-request-id"]) == (200, "mine-1")
    assert len(unnamed.headers["x-request-id"]) == 32
    assert [call.request_id for call in harness.ended] == ["mine-1", unnamed.headers["x-request-id"]]
    assert {call.method for call in harness.ended} == {"test/ask"}
    assert harness.codes() == {"OK": 2}


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (InvalidInput("has 9 tokens", field="texts", index=3), 400, "INVALID_ARGUMENT", "q[3] has 9 tokens"),
        (NotFound("no model"), 404, "NOT_FOUND", "no model"),
        (PermissionDenied("not yours"), 403, "PERMISSION_DENIED", "not yours"),
        (Overloaded("full", reason="requests", retry_after_s=1.2), 429, "RESOURCE_EXHAUSTED", "full"),
        (Unavailable("draining", reason="draining"), 503, "UNAVAILABLE", "draining"),
        (InternalError("no numbers"), 500, "INTERNAL", "no numbers"),
    ],
)
async def test_error_is_a_status_and_a_message(harness, error: DragomanError, status, code, message):
    harness.raising(error)

    answer = await harness.send()

    assert (answer.status, answer.json()) == (status, {"error": message})
    assert answer.headers.get("retry-after") == {429: "2", 503: "1"}.get(status)
    assert harness.codes() == {code: 1}


async def test_error_of_ours_shows_nothing_but_the_request_id(harness, log):
    harness.raising(ValueError(SECRET))

    answer = await harness.send(b"{}", "X-Request-Id: mine-1")

    assert answer.status == 500
    assert answer.json() == {"error": "internal error; the server's log has it under request id mine-1"}
    assert SECRET not in str(log)


@pytest.mark.parametrize(
    ("body", "content_type", "fields"),
    [
        (b'{"q": ["a", "b"], "n": 1}', "application/json", {"q": ["a", "b"], "n": 1}),
        (b'{"q": "a"}', "", {"q": "a"}),
        (b"q=a+b%C3%A9&t=1&t=2", "application/x-www-form-urlencoded", {"q": "a bé", "t": ["1", "2"]}),
        ("q=schläft&t=%C3%A9&t=2".encode(), "application/x-www-form-urlencoded", {"q": "schläft", "t": ["é", "2"]}),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nd\xc3\xa9j\xc3\xa0\r\nvu\r\n--x--\r\n',
            'multipart/form-data; boundary="x"',
            {"q": "déjà\r\nvu"},
        ),
        (b"", "application/json", {}),
    ],
)
async def test_fields_come_as_json_or_in_forms_and_go_before_those_of_the_query(harness, body, content_type, fields):
    answer = await harness.send(body, f"Content-Type: {content_type}", path="/ask?q=query&other=1")

    assert answer.json()["fields"] == {"q": "query", "other": "1", **fields}


@pytest.mark.parametrize("content", [b"", b"a\rb\nc\r\nd\x00\xff--x\xc3", b"\n" * 70_000, b"--x-\r\n-- x"])
async def test_file_of_a_form_comes_byte_for_byte(harness, content):
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'

    await harness.send(head + content + b"\r\n--x--\r\n", "Content-Type: multipart/form-data; boundary=x")

    assert harness.asked[0].fields["file"] == File("a.txt", content)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", "application/json"),
        (b"[1]", "application/json"),
        (b'{"q": "\\ud800"}', "application/json"),
        (b'{"q": "\xff"}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"q=%FF", "application/x-www-form-urlencoded"),
        (b"q=\xff", "application/x-www-form-urlencoded"),
        (b"--y\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nnameless\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\n", "multipart/form-data"),
        (b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n", "multipart/form-data; boundary=x"),  # no end
        (b"--x\r\n\r\n\r\n" * 20_000 + b"--x--\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n" + b"A: b\r\n" * 20_000 + b"\r\na\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (
            b"--x\r\n" + b"Content-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n" * 3_000 + b"--x--\r\n",
            "multipart/form-data; boundary=x",
        ),
        (b"q=a", "text/plain"),
    ],
)
async def test_body_that_is_not_what_its_type_says_is_refused(harness, body, content_type):
    answer = await harness.send(body, f"Content-Type: {content_type}")

    assert answer.status == 400
    assert harness.codes() == {"INVALID_ARGUMENT": 1}


@pytest.mark.promise("H6")
async def test_body_over_the_limit_is_refused_and_counted_and_others_are_served(harness):
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(
        b"POST /ask HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
    )
    answer = Answer(await reader.readuntil(b"}"))
    writer.close()

    assert (answer.status, answer.headers["x-request-id"]) == (413, "mine")
    assert answer.json() == {"error": "the body is too large, at most 200000 bytes are accepted"}
    assert (await harness.send()).status == 200
    assert harness.codes() == {"RESOURCE_EXHAUSTED": 1, "OK": 1}


async def forever(asked: HttpRequest, call: Call) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.promise("H3")
@pytest.mark.parametrize(("limit_s", "headers"), [(60.0, ["X-Request-Timeout-Ms: 30"]), (0.03, [])])
async def test_deadline_of_the_caller_or_the_server_ends_the_work(limit_s, headers):
    async with running(Harness(limit_s=limit_s)) as harness:
        harness.behaviour = forever
        answer = await harness.send(b"{}", *headers)

    assert answer.status == 504
    assert harness.codes() == {"DEADLINE_EXCEEDED": 1}


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "x", "9" * 30, ""])
async def test_deadline_that_is_no_number_of_milliseconds_is_refused(harness, given):
    assert (await harness.send(b"{}", f"X-Request-Timeout-Ms: {given}")).status == 400


async def test_caller_that_leaves_ends_the_work(harness):
    was_cancelled = asyncio.Event()

    async def work(asked: HttpRequest, call: Call) -> Response:
        try:
            return await forever(asked, call)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    harness.behaviour = work
    _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(b"POST /ask HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    await eventually(lambda: bool(harness.asked))
    writer.close()
    await asyncio.wait_for(was_cancelled.wait(), 60)
    await harness.calls.all_left()

    assert harness.codes() == {"CANCELLED": 1}


async def test_streamed_answer_is_part_of_its_call(harness):
    async def pieces() -> AsyncIterator[str]:
        assert harness.ended == []
        yield "a"
        await asyncio.sleep(0)
        yield "b" * 200_000

    async def stream(asked: HttpRequest, call: Call) -> Response:
        return StreamingResponse(pieces())

    harness.behaviour = stream
    answer = await harness.send()

    assert answer.body.replace(b"\r\n", b"").count(b"b") == 200_000
    await harness.calls.all_left()
    assert harness.codes() == {"OK": 1}


async def test_call_that_would_be_refused_is_refused_unparsed():
    refusal = Overloaded("full", reason="requests", retry_after_s=3.0)
    async with running(Harness(refuse=lambda caller, deadline: refusal)) as harness:
        answer = await harness.send(b"{", "Authorization: Bearer k")

    assert (answer.status, answer.headers["retry-after"]) == (429, "3")


async def test_key_comes_in_a_header_or_in_a_field(tmp_path):
    key = generate_key()
    file = tmp_path / "keys.toml"
    file.write_text(f'[[keys]]\nname = "shop"\nsha256 = "{digest_of(key)}"\n')
    keys = watch_keys(file, period_s=60.0)
    async with running(Harness(Authenticator(keys, clock=lambda: datetime.now(UTC)))) as harness:
        good = [
            await harness.send(b"{}", f"Authorization: Bearer {key}"),
            await harness.send(b"{}", f"Authorization: DeepL-Auth-Key {key}"),
            await harness.send(json.dumps({"api_key": key}).encode()),
            await harness.send(b"", verb="GET", path=f"/ask?api_key={key}"),
        ]
        bad = [
            await harness.send(),
            await harness.send(b'{"api_key": null}'),
            await harness.send(b'{"api_key": "other"}'),
            await harness.send(json.dumps({"api_key": key}).encode(), "Authorization: Bearer other"),
        ]

    assert [answer.json()["caller"] for answer in good] == ["shop"] * 4
    assert [answer.status for answer in bad] == [403] * 4


async def test_caller_without_a_key_is_the_one_that_a_trusted_proxy_names():
    from ipaddress import ip_network

    proxies = TrustedProxies(header="x-client", networks=(ip_network("127.0.0.0/8"),))
    async with running(Harness(Authenticator(proxies=proxies))) as harness:
        named, unnamed = await harness.send(b"{}", "X-Client: alice"), await harness.send()

    assert (named.json()["caller"], unnamed.json()["caller"]) == ("alice", "127.0.0.1")


async def test_file_may_be_larger_than_another_body_up_to_a_limit_of_its_own(harness):
    json_type = "Content-Type: application/json"
    large, too_large = (b'{"q": "' + b"a" * size + b'"}' for size in (MAX_BODY_BYTES, 2 * MAX_BODY_BYTES))

    assert (await harness.send(large, json_type, path="/file")).status == 200
    refused = await harness.send(too_large, json_type, path="/file")
    assert (refused.status, str(2 * MAX_BODY_BYTES) in refused.body.decode()) == (413, True)


async def test_large_files_beyond_the_memory_for_them_are_told_to_come_again_and_room_is_given_back(harness):
    has_come, may_go = asyncio.Event(), asyncio.Event()

    async def hold(asked: HttpRequest, call: Call) -> Response:
        has_come.set()
        await may_go.wait()
        return JSONResponse({})

    harness.behaviour = hold
    large = b'{"q": "' + b"a" * (2 * MAX_BODY_BYTES - 20) + b'"}'
    held = []
    for _ in range(LARGE_FILES):
        held.append(asyncio.create_task(harness.send(large, "Content-Type: application/json", path="/file")))
        await has_come.wait()
        has_come.clear()
    refused = await harness.send(large, "Content-Type: application/json", path="/file")
    may_go.set()

    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * LARGE_FILES
    assert (await harness.send(large, "Content-Type: application/json", path="/file")).status == 200


async def test_work_beyond_an_answer_is_a_call_of_its_own_of_the_same_caller(harness):
    may_go = asyncio.Event()

    async def begin(asked: HttpRequest, call: Call) -> Response:
        async def work(own: Call) -> None:
            await may_go.wait()
            raise NotFound("nothing there")

        harness.calls.work_on(call, "test/work", work)
        return JSONResponse({})

    harness.behaviour = begin
    answer = await harness.send()
    left = asyncio.create_task(harness.calls.all_left())
    assert (answer.status, [call.method for call in harness.ended]) == (200, ["test/ask"])
    may_go.set()
    await left

    assert [(call.method, call.code) for call in harness.ended] == [("test/ask", "OK"), ("test/work", "NOT_FOUND")]
    assert harness.ended[1].caller == harness.ended[0].caller
    assert harness.ended[1].request_id == answer.headers["x-request-id"]
