"""API keys at the door of every call: who is let in, to what, and what is said of the others."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from service.grpc.api_keys import KeyFile, digest_of, generate_key
from service.grpc.authentication import Authenticator
from service.grpc.call import current_call
from service.grpc.interceptors import REFUSALS_LOGGED
from tests.fakes.calls import failure
from tests.fakes.intercepted_server import MANY, Harness, harness, opening_code, raising
from tests.fakes.logs import log

__all__ = ["harness", "log"]

KEY, LIMITED = generate_key(), generate_key()


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Harness]:
    file = tmp_path / "keys.toml"
    entries = ((KEY, "shop", ""), (LIMITED, "limited", 'models = ["small"]'))
    written = (f'[[keys]]\nname = "{name}"\nsha256 = "{digest_of(key).hex()}"\n{more}' for key, name, more in entries)
    file.write_text("\n".join(written))
    async with Harness(60.0, Authenticator(KeyFile(file, period_s=60.0))).running() as running:
        yield running


def bearing(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


class TestKeys:
    async def test_call_without_a_key_is_refused_before_its_request_is_parsed(self, guarded):
        guarded.behaviour = raising(AssertionError("the handler ran"))

        error = await failure(guarded.one(b"x" * 3_000_000))

        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert guarded.parsed == []
        assert await guarded.books() == {"UNAUTHENTICATED": 1.0}

    async def test_stream_without_a_key_is_refused(self, guarded):
        assert await opening_code(guarded.many()) is grpc.StatusCode.UNAUTHENTICATED
        assert await guarded.books(MANY) == {"UNAUTHENTICATED": 1.0}

    async def test_unknown_method_is_not_told_apart_without_a_key(self, guarded):
        nothing = guarded.channel.unary_unary("/test.Service/Nothing")

        assert (await failure(nothing(b""))).code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await failure(nothing(b"", metadata=bearing(KEY)))).code() is grpc.StatusCode.UNIMPLEMENTED

    async def test_call_knows_whose_key_it_came_with(self, guarded):
        async def behaviour(request: bytes, context: Any) -> bytes:
            client = current_call().client
            return f"{client.source} {client.name}".encode()

        guarded.behaviour = behaviour

        assert await guarded.one(metadata=bearing(KEY)) == b"key shop"

    async def test_call_without_keys_knows_where_it_came_from(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            client = current_call().client
            return f"{client.source} {client.name}".encode()

        harness.behaviour = behaviour

        assert await harness.one() == b"peer 127.0.0.1"

    async def test_key_for_some_models_opens_no_other(self, guarded):
        async def behaviour(request: bytes, context: Any) -> bytes:
            current_call().use_model(request.decode())
            return b"done"

        guarded.behaviour = behaviour

        assert await guarded.one(b"small", metadata=bearing(LIMITED)) == b"done"
        assert await guarded.one(b"large", metadata=bearing(KEY)) == b"done"
        error = await failure(guarded.one(b"large", metadata=bearing(LIMITED)))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "the API key of limited is not for the model large",
        )

    async def test_refusals_are_logged_without_the_key_and_only_so_often(self, guarded, log):
        for number in range(REFUSALS_LOGGED + 5):
            await failure(guarded.one(metadata=(*bearing("almost" + KEY[9:]), ("x-request-id", f"call-{number}"))))

        events = [json.loads(line) for line in log.getvalue().splitlines()]
        assert [event["request_id"] for event in events] == [f"call-{number}" for number in range(REFUSALS_LOGGED)]
        assert (events[0]["event"], events[0]["code"], events[0]["client"]) == (
            "call_refused",
            "UNAUTHENTICATED",
            "127.0.0.1",
        )
        assert KEY[9:] not in log.getvalue()
