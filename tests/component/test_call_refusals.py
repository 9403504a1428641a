"""Calls that are refused before their handler: a full server, API keys; on a gRPC server in this process."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from service.api.auth import authenticator, digest_of, generate_key
from service.api.calls import REFUSALS_LOGGED
from service.call import Call, Caller
from service.config import SecurityConfig
from service.errors import (
    DragomanError,
    Overloaded,
)
from tests.fakes.books import sample_of
from tests.fakes.calls import failure
from tests.fakes.handled_calls import (
    Harness,
    answering,
    harness,
    raising,
)
from tests.fakes.logs import log

__all__ = ["harness", "log"]


class Full:
    """Refuses the first calls, so many, and notes what it was told of each call."""

    def __init__(self, num_refused: int) -> None:
        self._num_refused = num_refused
        self.told: list[tuple[str, float]] = []

    def refuse(self, caller: Caller, deadline: float) -> DragomanError | None:
        self.told.append((caller.name, deadline))
        if len(self.told) > self._num_refused:
            return None
        return Overloaded("full", reason="queue_full", retry_after_s=0.01)


class TestRefusalsBeforeTheMessage:
    async def test_refused_call_is_not_parsed_and_is_told_what_a_later_refusal_tells(self):
        async with Harness(60.0, refuse=Full(1).refuse).running() as server:
            server.behaviour = raising(Overloaded("full", reason="queue_full", retry_after_s=0.01))
            early = await failure(server.one(b"x" * 3_000_000, metadata=(("x-request-id", "mine"),)))
            num_parsed = len(server.parsed)
            late = await failure(server.one(metadata=(("x-request-id", "mine"),)))

            assert (num_parsed, len(server.parsed)) == (0, 1)
            assert (early.code(), early.details()) == (late.code(), late.details())
            assert dict(early.trailing_metadata()) == dict(late.trailing_metadata())
            assert dict(early.trailing_metadata())["grpc-retry-pushback-ms"] == "10"
            assert dict(early.trailing_metadata())["x-request-id"] == "mine"
            assert await server.books() == {"RESOURCE_EXHAUSTED": 2.0}
            assert sample_of(server.metrics, "dragoman_rejected_total", {"reason": "queue_full"}) == 2.0


KEY, LIMITED = generate_key(), generate_key()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    entries = ((KEY, "shop", ""), (LIMITED, "limited", 'models = ["small"]'))
    written = (f'[[keys]]\nname = "{name}"\nsha256 = "{digest_of(key).hex()}"\n{more}' for key, name, more in entries)
    file.write_text("\n".join(written))
    return file


@pytest.fixture
async def guarded(keys_file: Path) -> AsyncIterator[Harness]:
    async with Harness(60.0, authenticator(SecurityConfig(api_keys=keys_file))).running() as running:
        yield running


def bearing(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


class TestKeys:
    async def test_key_counts_more_than_the_proxy_s_word(self, keys_file):
        settings = SecurityConfig(api_keys=keys_file, identity_header="x-client", trusted_proxies="127.0.0.1")
        async with Harness(60.0, authenticator(settings)).running() as server:
            server.behaviour = answering(b"")
            await server.one(metadata=(*bearing(KEY), ("x-client", "somebody")))
            await server.books()

        assert server.ended[0].caller.identity == ("key", "shop")

    async def test_key_for_some_models_opens_no_other(self, guarded):
        async def behaviour(request: bytes, call: Call) -> bytes:
            call.use_model(request.decode())
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
