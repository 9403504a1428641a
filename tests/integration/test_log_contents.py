"""What callers and the log of the real server are told: the request's id, and neither texts nor keys."""

import asyncio
import re
from collections.abc import Awaitable

import psutil
import pytest
from grpc_health.v1 import health_pb2

from service.api.auth import generate_key
from tests.fakes.calls import TRANSLATE, Calls, calling, failure, trailer
from tests.fakes.secured_server import Keys, events, guarded, keys, with_key

__all__ = ["guarded", "keys"]


class TestTraces:
    async def test_every_refusal_carries_the_request_s_id(self, guarded, keys):
        sent = with_key(keys.shop, "mine-7")
        async with calling(guarded.address) as calls:
            method, nobody = calls.method(TRANSLATE), calls.method("/nobody.Service/Nothing")
            refused = {
                "no key": await failure(method(b"", metadata=sent[1:])),
                "wrong model": await failure(method(b"\x0a\x01a", metadata=with_key(keys.elsewhere, "mine-7"))),
                "malformed": await failure(method(b"\xff", metadata=sent)),
                "no texts": await failure(method(b"", metadata=sent)),
                "unknown method": await failure(nobody(b"", metadata=sent)),
            }
            unnamed = await failure(method(b""))

        assert {case: trailer(error, "x-request-id") for case, error in refused.items()} == dict.fromkeys(
            refused, "mine-7"
        )
        assert re.fullmatch("[0-9a-f]{32}", str(trailer(unnamed, "x-request-id")))
        assert events(guarded, "call_refused")[0]["request_id"] == "mine-7"

    @pytest.mark.promise("F5")
    @pytest.mark.parametrize("log_format", ["json", "console"])
    async def test_neither_text_nor_key_enters_the_log(self, start_server, keys, log_format):
        """A session in which all kinds of things go well and go wrong."""
        secret = "Geheimnis"
        server = start_server(
            DRAGOMAN_SECURITY__API_KEYS=str(keys.file),
            DRAGOMAN_TELEMETRY__LOG_LEVEL="debug",
            DRAGOMAN_TELEMETRY__LOG_FORMAT=log_format,
            DRAGOMAN_LIMITS__MAX_CHARACTERS="100",
            DRAGOMAN_TELEMETRY__SLOW_REQUEST_S="0.001",
            ECHO_NAN_LENGTH=str(len(secret) + 5),
        )
        wrong = generate_key()
        async with calling(server.address) as calls:
            await misbehave(calls, secret, keys, wrong)
            psutil.Process(server.engine_pids()[0]).kill()
            await asyncio.gather(
                *(calls.translate(secret, metadata=with_key(keys.shop)) for _ in range(10)), return_exceptions=True
            )
        server.terminate()
        assert server.wait() == 0

        log = server.log_text()
        assert "call_refused" in log
        assert [word for word in (secret, wrong, wrong[9:], keys.shop[9:], keys.admin[9:]) if word in log] == []
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", log)


async def misbehave(calls: Calls, secret: str, keys: Keys, wrong: str) -> None:
    """Send the secret in every way that fails, and in some that do not."""
    good = with_key(keys.shop)
    raw = calls.method(TRANSLATE)
    attempts: list[Awaitable[object]] = [
        calls.translate(secret, metadata=good),
        calls.translate(f"{secret}!!!!", metadata=good),  # the runner makes NaN of this one
        calls.translate(secret * 20, metadata=good),
        calls.translate(secret),
        calls.translate(secret, metadata=with_key(wrong)),
        calls.translate(secret, metadata=with_key(keys.elsewhere)),
        calls.translate(secret, metadata=(("authorization", wrong),)),
        calls.translate(secret, metadata=(*good, *good)),
        calls.translate(secret, metadata=good, model=f"\x1b[31m{secret}\u202e"),
        calls.translate(secret, metadata=good, source_language=secret),
        calls.translate(secret, metadata=good, timeout=0.0001),
        calls.translate(secret, metadata=(*good[:1], ("x-request-id", f"{secret} {wrong}"))),
        calls.translate(secret, metadata=(*good, ("user", secret))),
        raw(secret.encode(), metadata=good, timeout=120.0),
        raw(b"\x0a\x0c\xc3\x28" + secret.encode() + b"\x80", metadata=good, timeout=120.0),
        calls.method(f"/nobody.Service/{secret}")(secret.encode(), metadata=good, timeout=120.0),
        calls.health.Check(health_pb2.HealthCheckRequest(service=f"\x1b{secret}")),
    ]
    await asyncio.gather(*attempts, return_exceptions=True)
