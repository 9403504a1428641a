"""`dragoman bulk` against a real server, killed at moments that nobody chose."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.own_text import own_sentences

LINES = 3_000


def bulk(source: Path, output: Path, address: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "service", "bulk", str(source), str(output), "--server", address]
    return subprocess.Popen([*command, "--part-size", "50"], stderr=subprocess.PIPE, text=True)


def test_killed_ten_times_the_output_is_that_of_an_undisturbed_run(server, tmp_path):
    source, whole, killed = (tmp_path / name for name in ("in.txt", "whole.txt", "killed.txt"))
    source.write_text("".join(f"{line}\n" for line in own_sentences(LINES)))
    rng = random.Random(3)

    with bulk(source, whole, server.address) as process:
        assert process.wait(timeout=60) == 0, process.stderr and process.stderr.read()
    kills = 0
    for _ in range(10):
        with bulk(source, killed, server.address) as process:
            time.sleep(rng.uniform(0.6, 1.2))  # its start included
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        if killed.exists():
            break
    with bulk(source, killed, server.address) as process:
        code = process.wait(timeout=60)

    assert kills > 0
    assert code == 0 or killed.exists()
    assert killed.read_bytes() == whole.read_bytes()
    assert not killed.with_name("killed.txt.parts").exists()


def test_a_missing_server_costs_nothing_that_was_done(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("one\n")

    with bulk(source, tmp_path / "out.txt", "127.0.0.1:1") as process:
        error = process.stderr.read() if process.stderr else ""
        code = process.wait(timeout=90)

    assert code == 3
    assert "127.0.0.1:1" in error
    assert not (tmp_path / "out.txt").exists()
