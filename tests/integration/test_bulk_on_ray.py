"""`dragoman bulk --engine ray` with a worker killed in the middle: nothing lost, nothing doubled, failures told."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fakes.own_text import own_sentences

pytest.importorskip("ray", reason="needs the extra ray")

LINES = 400
TOO_LONG = "x" * 20_000  # characters; the server's limit is 10,000
SLOW_S = "0.004"  # seconds a step of the echo runner, so that there is a middle
WITHIN_S = 100.0


def workers_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The processes of this cluster that translate, oldest first."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any("MapWorker" in word for word in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda child: child.create_time())


def await_parts(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + WITHIN_S
    while len(list(folder.glob("*.part"))) < count:
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < end, "no parts came"
        time.sleep(0.05)


@pytest.mark.slow  # Ray alone takes half of it to start and stop
@pytest.mark.timeout(240)
def test_a_killed_worker_costs_nothing(start_server, tmp_path):
    server = start_server(ECHO_STEP_S=SLOW_S)
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = list(own_sentences(LINES))
    lines[7] = TOO_LONG
    source.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "service", "bulk", str(source), str(output), "--server", server.address]
    options = ["--engine", "ray", "--workers", "2", "--part-size", "10"]

    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        await_parts(output.with_name("out.txt.parts"), 3, process)
        victim = workers_of(process)[0]
        victim.kill()
        _, said = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1, said
    assert "record 8: " in said
    lines[7] = ""
    assert output.read_text() == "".join(f"{line}\n" for line in lines)
    assert not output.with_name("out.txt.parts").exists()
