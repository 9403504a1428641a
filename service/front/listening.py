"""Addresses to listen on, and whether they are free.

gRPC shares a taken port silently unless told otherwise, and explains failures in many lines; a probe says it in one.
"""

import errno
import socket
from dataclasses import dataclass


class ListenError(Exception):
    """An address that cannot be listened on; `str(error)` is one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def check_free(self, purpose: str) -> None:
        """Bind the address and let it go again.

        Raises:
            ListenError: it is taken, or not an address of this machine.
        """
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
                probe.listen(1)  # with SO_REUSEADDR, only this notices a listener that came before
        except OSError as error:
            raise self.cannot_listen(purpose, error) from error

    def cannot_listen(self, purpose: str, error: OSError) -> ListenError:
        """The failure as one line with a way to the culprit."""
        hint = f"; find its owner with: ss -ltnp 'sport = :{self.port}'" if _is_taken(error) else ""
        return ListenError(f"cannot listen on {self} ({purpose}): {error.strerror or error}{hint}")


def _is_taken(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE
