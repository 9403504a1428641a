"""What goes on beside the messages: peers of HTTP/2 that keep to no rule, each in a thread until told to stop."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hyperframe.frame import SettingsFrame

from protos import translation_pb2 as pb
from tests.fakes.http2_peer import (
    Peer,
    call_headers,
    data_frame,
    grpc_message,
    headers_frame,
    ping_frame,
    rapid_reset,
    settings_frame,
)

REQUEST = grpc_message(pb.TranslateRequest(texts=["some words"] * 20).SerializeToString())

RESET_PAUSE_S = 5.0
TINY_WINDOW = 64  # bytes of an answer that the server may send before it has been read

Flood = Callable[[int, threading.Event, Counter[str]], None]


def resets(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Send bursts of 500 calls that are taken back at once, each burst on a connection of its own.

    Not more of them, as each call costs memory that grpcio never frees: it would cover what messages cost.
    tests/reliability/test_transport.py has floods without a pause.
    """
    while not is_over.is_set():
        with Peer(port) as peer:
            counts["resets"] += rapid_reset(peer, 500)
        is_over.wait(RESET_PAUSE_S)


def trickle(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Slow writers: ten connections, a byte of a message every tenth of a second."""
    while not is_over.is_set():
        peers = [Peer(port) for _ in range(10)]
        for peer in peers:
            peer.send(headers_frame(peer.next_stream(), call_headers()))
        for byte in REQUEST[:100]:
            if is_over.wait(0.1):
                break
            counts["trickled bytes"] += sum(peer.send(data_frame(1, bytes([byte]))) for peer in peers)
        for peer in peers:
            peer.close()


def deaf(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Slow readers: calls whose answers have nowhere to go, on connections from which nobody reads."""
    while not is_over.is_set():
        with Peer(port, reads=False) as peer:
            peer.send(settings_frame({SettingsFrame.INITIAL_WINDOW_SIZE: TINY_WINDOW}))
            for _ in range(50):
                stream = peer.next_stream()
                if not peer.send(headers_frame(stream, call_headers()) + data_frame(stream, REQUEST, is_end=True)):
                    break
                counts["calls nobody reads"] += 1
            is_over.wait(2.0)


def metadata(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Headers of 12 to 16 kB, in one frame: around the limit."""
    sizes = (1_000, 8_000, 12_000, 15_000)
    while not is_over.is_set():
        with Peer(port) as peer:
            for size in sizes:
                stream, block = peer.next_stream(), call_headers(more=(("x-large", "y" * size),))
                if peer.send(headers_frame(stream, block) + data_frame(stream, REQUEST, is_end=True)):
                    counts["large headers"] += 1
            is_over.wait(0.5)


def pings(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Pings until the server ends the connection."""
    while not is_over.is_set():
        with Peer(port) as peer:
            while not (peer.is_closed.is_set() or peer.goaways or is_over.wait(0.02)):
                counts["pings"] += peer.send(ping_frame())
        is_over.wait(1.0)


def nonsense(port: int, is_over: threading.Event, counts: Counter[str]) -> None:
    """Connections that open HTTP/2 and go on with something else, or end in the middle."""
    streams = (b"\x00" * 50, b"\xff" * 500, headers_frame(1, b"\xff\xff\xff\xff"), data_frame(2, b"x"), b"\x00\x00\x05")
    while not is_over.is_set():
        for data in streams:
            with suppress(OSError), Peer(port) as peer:
                peer.send(data)
                peer.is_closed.wait(0.2)
                counts["broken connections"] += 1
        is_over.wait(0.5)


FLOODS = (resets, trickle, deaf, metadata, pings, nonsense)


@contextmanager
def flooding(port: int) -> Iterator[Counter[str]]:
    """Run all of them while the block lasts; yields what each has done so far."""
    is_over, counts = threading.Event(), Counter[str]()

    def keep_on(flood: Flood) -> None:
        while not is_over.is_set():
            try:
                flood(port, is_over, counts)
            except OSError:  # the server refused a connection
                counts["refused connections"] += 1
                time.sleep(0.2)

    threads = [threading.Thread(target=keep_on, args=(flood,), daemon=True) for flood in FLOODS]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        is_over.set()
        for thread in threads:
            thread.join(10)
