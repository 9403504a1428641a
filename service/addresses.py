"""Addresses to listen on, and whether they are free."""

import errno
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # as those of IPv6 where it is switched off


class ListenError(Exception):
    """An address that cannot be listened on; `str(error)` is one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self, purpose: str, *, is_shared: bool = False) -> list[socket.socket]:
        """Return sockets that are bound to the addresses of the host, all at one port, or raise ListenError.

        As with gRPC, `localhost` has an address of IPv4 and one of IPv6, and `::` stands for all addresses of both.

        Args:
            is_shared: whether other processes may bind the port, too.
        """
        sockets: list[socket.socket] = []
        port, missing = self.port, None
        try:
            for family, kind, protocol, _, (host, _, *scope) in self._resolved():
                try:
                    sockets.append(_bound(family, kind, protocol, (host, port, *scope), is_shared=is_shared))
                    port = sockets[0].getsockname()[1]
                except OSError as error:
                    if error.errno not in _NO_SUCH_ADDRESS:
                        raise
                    missing = error
            if missing is not None and not sockets:
                raise missing
        except OSError as error:
            for one in sockets:
                one.close()
            raise self.cannot_listen(purpose, error) from error
        return sockets

    def _resolved(self) -> list[Any]:
        names = ("127.0.0.1", "::1") if self.host == "localhost" else (self.host,)  # whatever /etc/hosts says
        found = [
            socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE) for name in names
        ]
        return [one for part in found for one in part]

    def cannot_listen(self, purpose: str, error: OSError) -> ListenError:
        """The failure as one line with a way to the culprit."""
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = f"; choose another port, or find its owner with: ss -ltnp 'sport = :{self.port}'"
        elif error.errno in _NO_SUCH_ADDRESS:
            hint = "; the machine has no such address"
        return ListenError(f"cannot listen on {self} ({purpose}): {error.strerror or error}{hint}")


def is_loopback(host: str) -> bool:
    """Whether what listens at this host can be reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(family: int, kind: int, protocol: int, where: Any, *, is_shared: bool) -> socket.socket:
    """Return a socket that is bound there, or raise OSError."""
    bound = socket.socket(family, kind, protocol)
    try:
        # Also beside SO_REUSEPORT: connections that the server before has closed would keep the port for a minute.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, where[0] != "::")
        bound.bind(where)
    except OSError:
        bound.close()
        raise
    return bound


def check_free(addresses: Mapping[str, Address]) -> None:
    """Bind all addresses, each under the name of its setting, and let them go again; or raise ListenError."""
    with ExitStack() as bound:
        for purpose, address in addresses.items():
            twins = [name for name, other in addresses.items() if name != purpose and other.port == address.port != 0]
            try:
                for one in [bound.enter_context(one) for one in address.open(purpose)]:
                    one.listen(1)  # with SO_REUSEADDR, only this notices a listener that came before
            except OSError as error:
                raise address.cannot_listen(purpose, error) from error
            except ListenError as error:
                if not twins:
                    raise
                raise ListenError(f"{error}; {twins[0]} is {address.port}, too") from error


def reserve_port(address: Address, purpose: str) -> tuple[list[socket.socket], int]:
    """Return sockets that hold the port for processes that share it, and the port; or raise ListenError.

    Until a process listens, connections are refused.
    """
    check_free({purpose: address})
    holders = address.open(purpose, is_shared=True)
    return holders, holders[0].getsockname()[1]
