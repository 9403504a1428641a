"""A server's address as people write it: checked before anything is called, and whether a proxy stands on the way.

gRPC itself takes a port modulo 65,536 and waits for what no server can be; it sends calls to this machine's own
addresses through a company's proxy, too, where the environment names one.  Knows no channel.
"""

import os
import re
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from service.ranges import PORT

_IN_BRACKETS = re.compile(r"\[([^\[\]]*)\]:(.*)", re.DOTALL)
_NO_HOST = re.compile(r"[\s/@?#\[\]\x00-\x1f]")
_LIST = re.compile(r"ipv[46]:", re.IGNORECASE)
_NAME = re.compile(r"dns:(//[^/]*/)?", re.IGNORECASE)  # with or without the name server that is to be asked
_OPAQUE = re.compile(r"(unix|unix-abstract|vsock|xds):", re.IGNORECASE)  # gRPC's own, without a port to check
_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "localhost.localdomain"})
_PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")  # the first one that is set counts, as with gRPC
_EXCEPTION_VARIABLES = ("no_grpc_proxy", "no_proxy")


def checked_target(address: str) -> str:
    """Return the address; raises ValueError for one at which gRPC could not find a server.

    It is host:port, or a name of gRPC's: dns:///host:port, ipv4:host:port, ipv6:[host]:port, unix:/path.
    """
    if _OPAQUE.match(address) is None:
        for part in _parts(address):
            _host(part, address)
    return address


def is_local(target: str) -> bool:
    """Whether this machine alone can be meant by a checked target."""
    if _OPAQUE.match(target):
        return not target.lower().startswith("xds:")
    return all(_is_local_host(_host(part, target)) for part in _parts(target))


def proxy_on_the_way(target: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return what to say of the proxy through which gRPC calls a checked target; empty without one.

    No call to this machine goes through one: see `service.client.channel`.
    """
    name = next((name for name in _PROXY_VARIABLES if environment.get(name)), None)
    if name is None or _OPAQUE.match(target) or is_local(target):
        return ""
    exceptions = next((environment[name] for name in _EXCEPTION_VARIABLES if environment.get(name)), "")
    if _is_excepted(_host(_parts(target)[0], target), exceptions):
        return ""
    _, _, without_scheme = environment[name].rpartition("://")
    _, _, where = without_scheme.rpartition("@")  # whoever reads the message need not know the password
    return f"through the proxy {where.rstrip('/')}, which the environment's {name} names; no_proxy excepts hosts"


def _parts(address: str) -> list[str]:
    """Return each host:port of an address."""
    if found := _LIST.match(address):
        return address[found.end() :].split(",")
    if found := _NAME.match(address):
        return [address[found.end() :]]
    if "://" in address:
        raise ValueError(f"{address!a} is a URL: write the host:port of the gRPC port, like 127.0.0.1:50051")
    return [address]


def _host(part: str, address: str) -> str:
    """Return the host of a host:port; raises ValueError if it is none."""
    if in_brackets := _IN_BRACKETS.fullmatch(part):
        host, port = in_brackets.groups()
        _require(_ip(host) is not None, address, f"{host!a} is no IPv6 address")
    else:
        host, colon, port = part.rpartition(":")
        _require(part.count(":") < 2, address, "an IPv6 address stands in brackets, like [::1]:50051")
        _require(bool(colon), address, "it has no port: host:port is needed, like 127.0.0.1:50051")
        _require(bool(host) and not _NO_HOST.search(host), address, f"{host!a} is no host")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    _require(is_number and PORT.has(int(port)), address, f"its port is {port!a}, {PORT} is accepted")
    return host


def _require(is_right: bool, address: str, problem: str) -> None:
    if not is_right:
        raise ValueError(f"the server's address is {address!a}: {problem}")


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))  # 127.1 and its like
    except (OSError, ValueError):
        return None


def _is_local_host(host: str) -> bool:
    name = host.lower().removesuffix(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    address = _ip(name)
    address = getattr(address, "ipv4_mapped", None) or address
    return address is not None and (address.is_loopback or address.is_unspecified)


def _is_excepted(host: str, exceptions: str) -> bool:
    """Whether a list of names and networks excepts the host: as gRPC reads it, a name's end is enough."""
    address = _ip(host)
    for exception in map(str.strip, exceptions.split(",")):
        if exception and host.lower().endswith(exception.lower()):
            return True
        try:
            if address is not None and address in ip_network(exception, strict=False):
                return True
        except ValueError:
            continue
    return False
