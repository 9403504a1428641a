"""`dragoman bulk --engine ray` with a worker killed in the middle: nothing lost or doubled, failures and waits told."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from service.client import Client
from service.client.channel import ClientConfig
from service.errors import Overloaded
from tests.fakes.bulk_runs import WITHIN_S, await_parts, bulk, parts_folder, ray_workers
from tests.fakes.calls import words
from tests.fakes.own_text import numberless_sentences

pytest.importorskip("ray", reason="needs the extra ray: make try-ray")

LINES = 400
TOO_LONG = "x" * 20_000  # characters; the server's limit is 10,000
SLOW_S = "0.004"  # seconds a step of the echo runner, so that there is a middle
# A refused call is sent again soon.
ROOM_FOR_TWO = {"DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS": "2", "DRAGOMAN_LIMITS__RETRY_AFTER_S": "0.001"}
ALMOST_A_SECOND = words(200)  # a step each


@contextmanager
def occupied(address: str) -> Iterator[None]:
    """The server has no room, but for moments."""
    is_over = threading.Event()

    def call() -> None:
        with Client(address, ClientConfig(retries=False)) as client:
            while not is_over.is_set():
                with suppress(Overloaded):
                    client.translate([ALMOST_A_SECOND])

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        yield
    finally:
        is_over.set()
        for caller in callers:
            caller.join()


def await_words(words: str, process: "subprocess.Popen[str]") -> None:
    assert process.stderr
    limit = threading.Timer(WITHIN_S, process.kill)  # which ends its words
    limit.start()
    try:
        assert any(words in line for line in process.stderr), f"did not say {words!r} within {WITHIN_S:g} s"
    finally:
        limit.cancel()


@pytest.mark.slow  # Ray alone takes half of it to start and stop
@pytest.mark.timeout(240)
def test_a_killed_worker_costs_nothing(start_server, tmp_path):
    server = start_server(ECHO_STEP_S=SLOW_S, **ROOM_FOR_TWO)
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = numberless_sentences(LINES)
    lines[7] = TOO_LONG
    source.write_text("".join(f"{line}\n" for line in lines))

    with bulk(source, output, server.address, "--engine", "ray", "--workers", "2", "--part-size", "10") as process:
        with occupied(server.address):
            await_words("waiting, until there is room: ", process)
        await_parts(output, 3, process)
        ray_workers(process)[0].kill()
        _, said = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1, said
    assert "record 8: " in said
    lines[7] = ""
    assert output.read_text() == "".join(f"{line}\n" for line in lines)
    assert not parts_folder(output).exists()
