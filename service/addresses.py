"""Addresses to listen on, and whether they are free."""

import errno
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any


class ListenError(Exception):
    """An address that cannot be listened on; `str(error)` is one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def resolve(self) -> tuple[Any, ...]:
        """Return what a socket for it needs, as `socket.getaddrinfo`; may raise OSError."""
        return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

    def check_free(self, purpose: str) -> None:
        """Bind the address and let it go again, or raise ListenError."""
        try:
            family, kind, protocol, _, where = self.resolve()
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
                probe.listen(1)  # with SO_REUSEADDR, only this notices a listener that came before
        except OSError as error:
            raise self.cannot_listen(purpose, error) from error

    def cannot_listen(self, purpose: str, error: OSError) -> ListenError:
        """The failure as one line with a way to the culprit."""
        hint = f"; find its owner with: ss -ltnp 'sport = :{self.port}'" if error.errno == errno.EADDRINUSE else ""
        return ListenError(f"cannot listen on {self} ({purpose}): {error.strerror or error}{hint}")


def is_loopback(host: str) -> bool:
    """Whether what listens at this host can be reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reserve_port(address: Address, purpose: str) -> tuple[socket.socket, int]:
    """Return a socket that holds the port for processes that share it, and the port; or raise ListenError.

    Until a process listens, connections are refused.
    """
    address.check_free(purpose)
    try:
        family, kind, protocol, _, where = address.resolve()
        holder = socket.socket(family, kind, protocol)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(where)
    except OSError as error:
        raise address.cannot_listen(purpose, error) from error
    port: int = holder.getsockname()[1]
    return holder, port
