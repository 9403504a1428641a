"""Addresses to listen on: which ones a host stands for, and what is said where one cannot be had."""

import socket
from contextlib import ExitStack

import pytest

from service.addresses import Address, ListenError


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


@needs_ipv6
@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_port_that_is_taken_at_one_of_the_addresses_is_refused(taken):
    with socket.create_server((taken, 0), family=socket.AF_INET6 if ":" in taken else socket.AF_INET) as other:
        port = other.getsockname()[1]
        for host in ("localhost", "::"):
            with pytest.raises(ListenError, match=rf"{port} \(test\): Address already in use; find its owner"):
                Address(host, port).check_free("test")


@pytest.mark.parametrize("was_shared", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_port_can_be_had_at_once_after_a_server_that_shared_it_or_not(was_shared, is_shared):
    (before,) = Address("127.0.0.1", 0).open("test", is_shared=was_shared)
    with before:
        before.listen()
        port = before.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=120.0) as client:
            before.accept()[0].close()  # the side that closes first keeps the connection in TIME_WAIT
            assert client.recv(1) == b""

    (after,) = Address("127.0.0.1", port).open("test", is_shared=is_shared)

    with after:
        after.listen()
