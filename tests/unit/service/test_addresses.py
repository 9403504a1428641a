"""Addresses to listen on: which ones a host stands for, and what is said where one cannot be had."""

import socket
from contextlib import ExitStack

import pytest

from service.addresses import Address, ListenError, check_free


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="IPv6 is switched off")


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=120.0).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("::", {"127.0.0.1", "::1"}),
        ("localhost", {"127.0.0.1", "::1"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("::1", {"::1"}),
        ("127.0.0.1", {"127.0.0.1"}),
    ],
)
def test_host_is_reached_at_all_its_addresses(host, reached):
    with ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in Address(host, 0).open("test")]
        for one in sockets:
            one.listen()
        (port,) = {one.getsockname()[1] for one in sockets}

        assert {address for address in ("127.0.0.1", "::1") if answers(address, port)} == reached


def test_port_that_is_set_twice_is_taken_and_both_settings_are_named():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    addresses = {"listen.grpc_port": Address("0.0.0.0", port), "listen.http_port": Address("127.0.0.1", port)}

    with pytest.raises(ListenError, match=rf"{port} \(listen.http_port\): .*; listen.grpc_port is {port}, too"):
        check_free(addresses)
