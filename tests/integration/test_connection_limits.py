"""What one connection may do to the server: metadata, streams, pings, silence and age, over real sockets."""

import asyncio

import grpc
import pytest

from service.client.channel import service_config
from tests.fakes.calls import calling, details_of, eventually, failure, words
from tests.fakes.http2_peer import ENHANCE_YOUR_CALM, Peer, call_headers, headers_frame, ping_frame
from tests.fakes.server_process import ServerProcess

Code = grpc.StatusCode
OFTEN = {"DRAGOMAN_LISTEN__KEEPALIVE_TIME_S": "0.3"}
TIMEOUT = "DRAGOMAN_LISTEN__KEEPALIVE_TIMEOUT_S"  # of an acknowledgement, and of a connection's beginning


async def still_serves(server: ServerProcess) -> bool:
    async with calling(server.address) as calls:
        return await calls.texts("a") == ["a"]


async def test_metadata_over_the_limit_is_refused_and_the_connection_stays(server):
    async with calling(server.address) as calls:
        large = await failure(calls.translate("a", metadata=(("x", "y" * 20_000),)))

        assert large.code() is Code.RESOURCE_EXHAUSTED
        assert "metadata size exceeds hard limit" in details_of(large)
        assert await calls.texts("a") == ["a"]


async def test_admin_port_has_the_same_limits(start_server):
    server = start_server(
        DRAGOMAN_LISTEN__ADMIN_PORT="0",
        DRAGOMAN_LISTEN__MAX_METADATA_BYTES="2048",
        DRAGOMAN_LISTEN__REFLECTION="false",
        **{TIMEOUT: "2"},
    )
    async with calling(server.admin_address) as calls:
        status = calls.method("/dragoman.admin.v1.AdminService/GetStatus")
        large = await failure(status(b"", metadata=(("x", "y" * 3_000),), timeout=120.0))
        reflection = calls.stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        assert "metadata size exceeds hard limit" in details_of(large)
        assert (await failure(reflection.read())).code() is Code.UNIMPLEMENTED
    with Peer(server.admin_port) as flooding, Peer(server.admin_port, opening=b"") as silent:
        flooding.send(ping_frame() * 10)

        assert await flooding.farewell() == (ENHANCE_YOUR_CALM, b"too_many_pings")
        assert await asyncio.to_thread(silent.is_closed.wait, 30)


async def test_calls_over_the_limit_of_a_connection_wait_for_those_before_them(start_server):
    """A call that follows an answer at once may meet the server before that stream is gone: clients send it again."""
    again = service_config(retries=True)
    server = start_server(DRAGOMAN_LISTEN__MAX_STREAMS_PER_CONNECTION="2", ECHO_STEP_S="0.02")

    async with calling(server.address, enable_retries=1, service_config=again) as calls:
        with server.held():
            answering = asyncio.gather(*(calls.translate(words(10)) for _ in range(12)))
            await eventually(lambda: in_flight(server) == 2.0)
        most = 0.0
        while not answering.done():
            most = max(most, await asyncio.to_thread(in_flight, server))
        await answering

    assert most <= 2.0


def in_flight(server: ServerProcess) -> float:
    return server.metric("dragoman_requests_in_flight", method="dragoman.v1.TranslationService/Translate")


async def test_flood_of_pings_ends_its_own_connection(server):
    with Peer(server.grpc_port) as peer:
        peer.send(ping_frame() * 10)

        assert await peer.farewell() == (ENHANCE_YOUR_CALM, b"too_many_pings")
    assert await still_serves(server)


async def test_peer_that_never_answers_is_dropped(start_server):
    """Half-open: its machine is gone, and nothing ever said so."""
    server = start_server(**OFTEN, **{TIMEOUT: "2"})
    with Peer(server.grpc_port, answers=False) as peer:
        peer.send(headers_frame(1, call_headers()))

        assert await peer.farewell() == (ENHANCE_YOUR_CALM, b"ping_timeout")
    await eventually(lambda: in_flight(server) == 0.0)


@pytest.mark.parametrize("opening", [b"", b"PRI * HT"])
async def test_connection_that_does_not_begin_is_dropped(start_server, opening):
    server = start_server(**{TIMEOUT: "0.3"})
    with Peer(server.grpc_port, opening=opening) as peer:
        assert await asyncio.to_thread(peer.is_closed.wait, 30)
    assert await still_serves(server)


async def test_connection_without_calls_is_closed(start_server):
    server = start_server(DRAGOMAN_LISTEN__MAX_CONNECTION_IDLE_S="0.3")
    with Peer(server.grpc_port) as peer:
        assert (await peer.farewell())[1] == b"connection idle"


async def test_age_ends_connections_without_an_error_for_anybody(start_server):
    server = start_server(DRAGOMAN_LISTEN__MAX_CONNECTION_AGE_S="0.3", ECHO_STEP_S="0.01")
    peers: set[int] = set()

    # A call that gRPC was about to send when it read the GOAWAY: it sends that on the next connection by itself.
    async with calling(server.address, enable_retries=1) as calls, asyncio.timeout(300):
        while len(peers) < 4:  # it comes back on new connections
            answering = asyncio.gather(*(calls.texts(words(20)) for _ in range(4)))
            while not answering.done():
                peers |= await asyncio.to_thread(server.grpc_connections)
            assert answering.result() == [[words(20)]] * 4
