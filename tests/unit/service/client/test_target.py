"""Which addresses are addresses of a server, which are this machine's own, and which are called through a proxy."""

import pytest

from service.client.channel import checked_target, is_local, proxy_on_the_way

PROXY = {"http_proxy": "http://somebody:secret@proxy.example:3128/"}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:50051",
        "translate.example:1",
        "[::1]:65535",
        "[fe80::1%eth0]:50051",
        "dns:///translate.example:50051",
        "dns://8.8.8.8/translate.example:50051",
        "dns:translate.example:50051",
        "ipv4:10.0.0.1:50051,10.0.0.2:50051",
        "ipv6:[::1]:50051",
        "unix:/run/dragoman.sock",
        "unix:///run/dragoman.sock",
        "unix-abstract:dragoman",
    ],
)
def test_an_address_that_grpc_can_call_is_taken_as_it_is(address):
    assert checked_target(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:115787",
        "127.0.0.1:0",
        "127.0.0.1:-50051",
        "127.0.0.1:abc",
        "127.0.0.1:5_0",
        "127.0.0.1:50051 ",
        "127.0.0.1:" + "9" * 5_000,
        "127.0.0.1:",
        "127.0.0.1",
        "",
        ":50051",
        "a host:50051",
        "host/path:50051",
        "::1:50051",
        "[translate.example]:50051",
        "[::1]",
        "http://127.0.0.1:50051",
        "https://translate.example",
        "dns:///translate.example:70000",
        "dns:///translate.example",
        "ipv4:10.0.0.1:50051,10.0.0.2",
    ],
)
def test_what_no_server_can_have_as_its_address_is_refused(address):
    with pytest.raises(ValueError, match=r"host:port is needed, like .*, with a port from 1 to 65,535$") as caught:
        checked_target(address)
    assert ascii(address) in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        "127.8.9.10:1",
        "localhost:1",
        "LocalHost.:1",
        "a.localhost:1",
        "[::1]:1",
        "0.0.0.0:1",
        "[::]:1",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1,127.0.0.2:1",
        "unix:/run/dragoman.sock",
    ],
)
def test_no_proxy_is_on_the_way_to_this_machine(address):
    assert is_local(address)
    assert proxy_on_the_way(address, PROXY) == ""


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1:1", "translate.example:1", "localhost.example:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "[2001:db8::1]:1"],
)
def test_a_proxy_on_the_way_elsewhere_is_named_without_its_password(address):
    said = proxy_on_the_way(address, PROXY)

    assert not is_local(address)
    assert said == (
        "through the proxy proxy.example:3128, which the environment's http_proxy names; no_proxy excepts hosts"
    )


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"http_proxy": "a:1", "https_proxy": "b:1", "grpc_proxy": "c:1"}, "c:1"),
        ({"http_proxy": "a:1", "https_proxy": "b:1"}, "b:1"),
        ({"https_proxy": "", "http_proxy": "a:1"}, "a:1"),
        ({"HTTP_PROXY": "a:1"}, ""),
        ({}, ""),
        ({"http_proxy": "a:1", "no_proxy": "other.example, .example"}, ""),
        ({"http_proxy": "a:1", "no_proxy": "other.example"}, "a:1"),
        ({"http_proxy": "a:1", "no_proxy": "translate.example", "no_grpc_proxy": "other.example"}, "a:1"),
    ],
)
def test_the_variables_mean_what_grpc_takes_them_for(variables, name):
    assert name in proxy_on_the_way("translate.example:1", variables)
    assert bool(name) == bool(proxy_on_the_way("translate.example:1", variables))


def test_a_network_is_excepted_as_a_whole():
    variables = {"http_proxy": "a:1", "no_proxy": "10.0.0.0/8"}

    assert proxy_on_the_way("10.1.2.3:1", variables) == ""
    assert proxy_on_the_way("11.1.2.3:1", variables) != ""
