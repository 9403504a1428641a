"""`dragoman bulk` against a real server, killed at moments that nobody chose, and inside a write."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.fakes.bulk_runs import bulk, drafts, parts_done, parts_folder
from tests.fakes.own_text import own_sentences

PARTS = ("--part-size", "20")
WITHIN_S = 300.0


def write_source(file: Path, lines: int) -> Path:
    file.write_text("".join(f"{line}\n" for line in own_sentences(lines)))
    return file


def run_to_end(source: Path, output: Path, address: str) -> None:
    with bulk(source, output, address, *PARTS) as process:
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said


@pytest.mark.thorough
def test_killed_four_times_the_output_is_that_of_an_undisturbed_run(server, tmp_path):
    source, whole, killed = (tmp_path / name for name in ("in.txt", "whole.txt", "killed.txt"))
    write_source(source, 800)
    rng = random.Random(3)

    run_to_end(source, whole, server.address)
    for _ in range(4):
        num_parts = len(parts_done(killed))
        with bulk(source, killed, server.address, *PARTS) as process:
            while len(parts_done(killed)) == num_parts and process.poll() is None:  # it takes a while to start
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.05))
            process.kill()
    if not killed.exists():  # a fast machine has finished between two kills
        run_to_end(source, killed, server.address)

    assert killed.read_bytes() == whole.read_bytes()
    assert not parts_folder(killed).exists()


def test_killed_inside_a_write_a_part_is_not_there_and_is_made_again(server, tmp_path):
    source, output = write_source(tmp_path / "in.txt", 80), tmp_path / "out.txt"

    with bulk(source, output, server.address, *PARTS, killed_in_write=3) as process:
        process.communicate(timeout=WITHIN_S)
    num_parts, (draft,) = len(parts_done(output)), drafts(output)
    draft_bytes = draft.stat().st_size
    run_to_end(source, output, server.address)

    lines = source.read_text().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    assert (num_parts, draft_bytes) == (2, len("".join(lines[40:60])) // 2)
    assert output.read_text() == "".join(lines)  # the echo runner's translation
    assert not parts_folder(output).exists()


def test_a_missing_server_costs_nothing_that_was_done(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("one\n")

    with bulk(source, tmp_path / "out.txt", "127.0.0.1:1", "--max-outage", "1") as process:
        _, error = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 3
    assert "127.0.0.1:1" in error
    assert not (tmp_path / "out.txt").exists()
